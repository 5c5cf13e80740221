/* What the copy of the system's librdmacm.so.1 in a node calls in the place of libc and libnl: its imports of
 * open, write, close, fstat, __fxstat and nl_connect are renamed to these, the ends of names that it has anyway
 * (internal/node/verbs/rdmacm has the same list).
 */
#ifndef NDKLAB_CM_H
#define NDKLAB_CM_H

#include <sys/stat.h>
#include <sys/types.h>

int cm_open(const char *path, int flags, ...) __asm__("dma_create_event_channel");
int cm_close(int fd) __asm__("dma_destroy_event_channel");
ssize_t cm_write(int fd, const void *command, size_t length) __asm__("dma_resolve_addr");
int cm_fstat(int fd, struct stat *st) __asm__("dma_get_src_port");
int cm_fxstat(int version, int fd, struct stat *st) __asm__("dma_get_dst_port");
int cm_nl_connect(void *socket, int protocol) __asm__("dma_resolve_route");

#endif
