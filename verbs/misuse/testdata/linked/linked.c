/* The library of an engine that is linked into the program: the race detector's memory is laid out for programs, and it
 * cannot be loaded later. */
#include <dlfcn.h>
#include <stdint.h>

const void *ndklab_engine(uint32_t version, char *message, uint64_t size);
const void *ndklab_engine(uint32_t version, char *message, uint64_t size)
{
	const void *(*linked)(uint32_t, char *, uint64_t) = (__typeof__(linked))dlsym(RTLD_DEFAULT, "ndklab_engine");

	return linked(version, message, size);
}
