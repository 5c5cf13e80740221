// Package provider is an NDK provider: the Network Direct Kernel Provider
// Interface of docs/spec/ndkpi.md as a Go library, speaking RoCEv2.
//
// A Miniport, the device, is started on a Carrier, which moves its packets: UDP
// sockets (package udp) or a simulated network (package sim). Consumers open
// instances of it, Adapters. On one a consumer makes
// protection domains, memory regions, completion queues, queue pairs, listeners
// and connectors, and exchanges data with Send, Receive, Read and Write. Names
// are NDKPI's without the Ndk prefix, and so are the manners: what takes time
// returns StatusPending and calls back; nothing else blocks; a Status is the
// NTSTATUS code and implements error. Creating an object never takes time here:
// those calls finish inline, unless Config.Pend has them not do so.
//
// The package is the driver around the pure state machines of rc (a
// connection's packets) and cm (its beginning and end): it owns their locks,
// timers and callbacks and knows objects, memory and statuses. It knows nothing
// of labs, namespaces or links.
//
// Locks are taken in the order Miniport.cmMu, counters.mu, QP.mu, SRQ.mu, CQ.mu,
// grant.mu, MR.mu, and last those of the tables, of objects and of callback
// queues, which are never held together. Miniport.state.mu is held together with
// none but these last. None is held while a consumer's callback runs. The
// carrier is called with cmMu or a QP.mu held, so that it must not deliver
// packets within Send.
//
// Start reading at NewMiniport and OpenAdapter; then QP and Connector.
package provider
