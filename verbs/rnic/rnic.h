/* What the files of ndklab-rnic share. Everything is its one thread's. */
#ifndef NDKLAB_RNIC_H
#define NDKLAB_RNIC_H

#include "../lib/remote.h"

/* Set by the first call. */
extern const struct engine *engine;

/* calls.c: serves the call that waits at the socket. Returns 0 when the library's end is closed. */
int serve_call(void);

/* posts.c */

/* Maps the ring of posts. Returns an errno. */
int map_posts(int memory);

/* Posts what is in the ring. */
void take_posts(void);
/* Tells who polls in vain that there are so many completions more. */
void wake_pollers(uint32_t completions);

/* Posts a request that binds a window. Returns the engine's errno, or 0 and the window's key. */
int bind_window(const struct remote_post *post, uint32_t *key);

/* How long to wait for more, as poll(2) has it: not at all, or until the doorbell rings. */
int wait_time(void);

/* A queue pair that posts are for. Returns an errno. */
int note_qp(uint64_t handle, uint32_t number, uint64_t send_cq);
void forget_qp(uint64_t handle);

/* completions.c: completion queues, by handles of their own. */

/* What to wait at: a socket that the engine tells of completions at, and what the library wakes this process by. */
extern int notices, doorbell;

int open_notices(void);
int create_cq(uint64_t context, int cqe, uint64_t cookie, int memory, int channel, uint64_t *cq);
int resize_cq(uint64_t cq, int cqe, int memory);
int destroy_cq(uint64_t cq);
uint64_t engine_cq(uint64_t cq); /* 0 where there is none */

/* sockets.c: the one descriptor of a socket of the program's; keeping takes another one of it, and -1 is none. */
int keep_socket(int fd);
int kept_socket(int fd);
void drop_socket(int fd);

/* Puts a completion of this process's own into the ring, where there is room. */
void add_completion(uint64_t cq, const struct ibv_wc *wc);

/* Notes which completion queues have what to move. */
void take_notices(void);

/* Moves completions to the rings; with rung, to those that were full, too. */
void fill_rings(int rung);

#endif
