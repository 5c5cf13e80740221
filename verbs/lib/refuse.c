/* The exported functions that do nothing: those that are refused, those that are private to rdma-core's
 * providers, and those of the ABI of before 2007. The file symbols says which are which; exports.h, made of it,
 * gives them their names and versions.
 *
 * Vendors' providers are linked so that every name has to be there when they are loaded; none is called, but for
 * their constructors' registering of drivers, for devices that there are none of.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "lib.h"
#include "public.h"

/* What stands for a function with any parameters, which callers pass in vain. */

int refuse_int(void);
int refuse_int(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

void *refuse_null(void);
void *refuse_null(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int ignore(void);
int ignore(void)
{
	return 0;
}

static _Noreturn void refuse_old(const char *name)
{
	fprintf(stderr, "ndklab: the program calls %s of libibverbs 1.0, of before 2007: compile it anew\n", name);
	abort();
}

/* Private to rdma-core, and called by ibv_devinfo and pyverbs: its versions have to be named in this file. */
int private_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int private_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	return query_gid_type(context, port, index, type);
}

#include "exports.h"
