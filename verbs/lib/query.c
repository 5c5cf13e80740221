/* Queries of the device, its port, its GIDs and its P_Keys. */
#include <errno.h>
#include <string.h>
#include "lib.h"
#include "public.h"

/* The one port, and the one P_Key, that of the default partition with full membership (IBTA Vol. 1, 10.9.1.2). */
#define PORT 1
#define PKEY 0xffff

/* Copies what fits of an answer to a program that may have been compiled with more or fewer fields. */
static void copy_sized(void *to, size_t to_size, const void *from, size_t size)
{
	memcpy(to, from, to_size < size ? to_size : size);
	if (to_size > size)
		memset((char *)to + size, 0, to_size - size);
}

/* As it was when the context was opened: it does not change, and so a child of a fork may ask, too. */
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size)
{
	const struct ibv_device_attr_ex *answer = &to_context(context)->device;

	if ((input && input->comp_mask) || size < sizeof(answer->orig_attr))
		return EINVAL;
	copy_sized(attr, size, answer, sizeof(*answer));
	return 0;
}

int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct ibv_device_attr_ex answer;
	int status = query_device_ex(context, NULL, &answer, sizeof(answer));

	if (!status)
		*attr = answer.orig_attr;
	return status;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return query_device(context, attr);
}

int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr answer = { 0 };
	int status = check_context(context);

	if (status)
		return status;
	if (port != PORT)
		return EINVAL;
	status = CALL(context, query_port, to_context(context)->handle, &answer);
	if (!status)
		copy_sized(attr, size, &answer, sizeof(answer));
	return status;
}

/* The function, not the inline code of that name: for programs of before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	return query_port(context, port, attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* Returns the number of GIDs, or -errno. */
static int read_gids(struct ibv_context *context, struct engine_gid gids[MAX_GIDS])
{
	int status = check_context(context), n;

	if (status)
		return -status;
	n = CALL(context, query_gids, to_context(context)->handle, gids, MAX_GIDS);
	return n < MAX_GIDS ? n : MAX_GIDS;
}

static struct ibv_gid_entry describe_gid(const struct engine_gid *gid, uint32_t index)
{
	struct ibv_gid_entry entry = {
		.gid_index = index,
		.port_num = PORT,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = gid->ifindex,
	};

	memcpy(entry.gid.raw, gid->gid, sizeof(entry.gid.raw));
	return entry;
}

static int fail(int status)
{
	errno = status;
	return -1;
}

/* Entries of the table that are not used are zero. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct engine_gid gids[MAX_GIDS];
	int n = read_gids(context, gids);

	if (n < 0)
		return fail(-n);
	if (port != PORT || index < 0 || index >= MAX_GIDS)
		return fail(EINVAL);
	memset(gid, 0, sizeof(*gid));
	if (index < n)
		memcpy(gid->raw, gids[index].gid, sizeof(gid->raw));
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	struct engine_gid gids[MAX_GIDS];
	struct ibv_gid_entry answer;
	int n = read_gids(context, gids);

	if (n < 0)
		return -n;
	if (flags)
		return EOPNOTSUPP;
	if (port != PORT || index >= MAX_GIDS)
		return EINVAL;
	if (index >= (uint32_t)n)
		return ENODATA;
	answer = describe_gid(&gids[index], index);
	copy_sized(entry, size, &answer, sizeof(answer));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
			     size_t size)
{
	struct engine_gid gids[MAX_GIDS];
	int n = read_gids(context, gids);

	if (n < 0)
		return n;
	if (flags)
		return -EOPNOTSUPP;
	if (max < (size_t)n)
		return -EINVAL;
	for (int i = 0; i < n; i++) {
		struct ibv_gid_entry answer = describe_gid(&gids[i], i);

		copy_sized((char *)entries + i * size, size, &answer, sizeof(answer));
	}
	return n;
}

/* The types are those of /sys, where 1 is RoCE v2. */
int query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	(void)context;
	if (port != PORT || index >= MAX_GIDS)
		return fail(EINVAL);
	*type = 1;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	int status = check_context(context);

	if (status)
		return fail(status);
	if (port != PORT || index)
		return fail(EINVAL);
	*pkey = PKEY;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	int status = check_context(context);

	if (status)
		return fail(status);
	return port == PORT && pkey == PKEY ? 0 : fail(EINVAL);
}

/* The raw clock is a count of ticks, which nsec alone has, as of ConnectX. hca_core_clock says that they are ns. */
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	int status = check_context(context);

	if (status)
		return status;
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){ .tv_nsec = CALL(context, clock) };
	values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

int ibv_fork_init(void)
{
	return 0;
}

/* Memory is read where it lies, and pages that a fork shares stay the parent's. */
enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}
