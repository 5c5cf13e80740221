/* Old versions of glibc's functions. glibc 2.34 has those of libdl and libpthread in libc with a new version, which would
 * keep the library from older ones.
 */
#ifndef NDKLAB_GLIBC_H
#define NDKLAB_GLIBC_H

#define BIND(function, version) __asm__(".symver " #function ", " #function "@" version)

/* The versions of functions that x86-64 has had from its first, 2.2.5, and from 2.12; other architectures
 * begin later. */
#if defined(__x86_64__)
#define BIND_FIRST(function) BIND(function, "GLIBC_2.2.5")
#define BIND_2_12(function) BIND(function, "GLIBC_2.12")
#elif defined(__aarch64__)
#define BIND_FIRST(function) BIND(function, "GLIBC_2.17")
#define BIND_2_12(function) BIND(function, "GLIBC_2.17")
#else
#define BIND_FIRST(function) _Static_assert(1, "whatever there is")
#define BIND_2_12(function) BIND_FIRST(function)
#endif

#endif
