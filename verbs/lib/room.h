#ifndef NDKLAB_ROOM_H
#define NDKLAB_ROOM_H

/* Returns EMFILE, ENOMEM or EAGAIN where the process has not enough for the engine to start, else 0. */
int check_room(void);

#endif
