#ifndef NDKLAB_FORK_H
#define NDKLAB_FORK_H

/* Has children of this process close what engine_opened is told of. Returns 0 or an errno. */
int close_in_children(void);

/* Tells of a socket of the engine's. */
void engine_opened(int fd);

#endif
