// Package a has comments. Where it says where, it passes. Why does it? It says
// "what is lost": that is a quotation.
package a

const limit = 3 /* limit is how long a caller waits. */ // want "defines by a relative clause: limit is how long a caller waits."

const bound = 3 // bound limits the time that a caller waits

/* The first sentence passes. What is lost is sent again, however long that takes and whoever it is. */ // want "begins with a relative clause: What is lost is sent again, however long that takes and ..."
const again = 1

/* That a packet is lost, its sender notices. */ // want "begins with a relative clause: That a packet is lost, its sender notices."
const lost = 1

// That is so. Which of them is it?
const sum = limit + bound + again + lost

/* A request and an answer are what is on the wire. */ // want "defines by a relative clause: A request and an answer are what is on the wire."
const wire = sum
