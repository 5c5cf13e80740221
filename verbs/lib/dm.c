/* Device memory (ibv_alloc_dm(3)): memory that programs reach by copying only, and peers as any other.
 *
 * The device is emulated, and so is its memory: it is this process's. None of it is the engine's until it is
 * registered, so that a child of a fork may allocate some with its parent's context.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib.h"

/* Offsets and lengths of copies are multiples of it, bytes, as with ConnectX. */
#define UNIT 4

/* The largest log_align_req, and the alignment of what asks for less: atomics need that of 8 bytes. */
#define MAX_LOG_ALIGN 12
#define LEAST_ALIGN 64

static size_t allocated; /* of DEVICE_MEMORY, bytes; atomic */

static bool is_inside(const struct dm *dm, uint64_t offset, size_t length)
{
	return offset <= dm->length && length <= dm->length - offset;
}

static int check_copy(const struct dm *dm, uint64_t offset, size_t length)
{
	return offset % UNIT || length % UNIT || !is_inside(dm, offset, length) ? EINVAL : 0;
}

static int copy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	int status = check_copy(to_dm(dm), offset, length);

	if (!status && length)
		memcpy(to_dm(dm)->memory + offset, from, length);
	return status;
}

static int copy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	int status = check_copy(to_dm(dm), offset, length);

	if (!status && length)
		memcpy(to, to_dm(dm)->memory + offset, length);
	return status;
}

/* Takes a part of DEVICE_MEMORY. */
static bool take(size_t length)
{
	if (__atomic_add_fetch(&allocated, length, __ATOMIC_RELAXED) <= DEVICE_MEMORY)
		return true;
	__atomic_fetch_sub(&allocated, length, __ATOMIC_RELAXED);
	return false;
}

static struct dm *new_dm(struct ibv_context *context, const struct ibv_alloc_dm_attr *attr)
{
	size_t align = (size_t)1 << attr->log_align_req;
	struct dm *dm = calloc(1, sizeof(*dm));
	void *memory;

	if (!dm)
		return NULL;
	if (posix_memalign(&memory, align < LEAST_ALIGN ? LEAST_ALIGN : align, attr->length)) {
		free(dm);
		return NULL;
	}
	memset(memory, 0, attr->length);
	dm->memory = memory;
	dm->length = attr->length;
	dm->dm.context = context;
	dm->dm.memcpy_to_dm = copy_to_dm;
	dm->dm.memcpy_from_dm = copy_from_dm;
	return dm;
}

struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct dm *dm;

	if (attr->comp_mask || !attr->length || attr->length > DEVICE_MEMORY || attr->log_align_req > MAX_LOG_ALIGN) {
		errno = EINVAL;
		return NULL;
	}
	if (!take(attr->length)) {
		errno = ENOMEM;
		return NULL;
	}
	dm = new_dm(context, attr);
	if (!dm) {
		__atomic_fetch_sub(&allocated, attr->length, __ATOMIC_RELAXED);
		errno = ENOMEM;
		return NULL;
	}
	return &dm->dm;
}

int free_dm(struct ibv_dm *public)
{
	struct dm *dm = to_dm(public);

	if (in_use(&dm->users))
		return EBUSY;
	__atomic_fetch_sub(&allocated, dm->length, __ATOMIC_RELAXED);
	free(dm->memory);
	free(dm);
	return 0;
}

/* Its addresses are offsets: the program has no others for it. */
struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *public, uint64_t offset, size_t length, unsigned int access)
{
	struct dm *dm = to_dm(public);
	struct ibv_mr *mr;

	if (!(access & IBV_ACCESS_ZERO_BASED) || !is_inside(dm, offset, length)) {
		errno = EINVAL;
		return NULL;
	}
	mr = register_mr(pd, dm->memory + offset, length, 0, access);
	if (!mr)
		return NULL;
	mr->addr = NULL;
	to_mr(mr)->dm = dm;
	add_user(&dm->users);
	return mr;
}
