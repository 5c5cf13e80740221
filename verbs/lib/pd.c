/* Protection domains, thread domains and parent domains.
 *
 * The engine has one protection domain for a domain and all its parent domains, and no thread domains: posting
 * takes locks in any case. So it is the library that counts what was made with each.
 */
#include <errno.h>
#include <stdlib.h>
#include "lib.h"
#include "public.h"

void hold_pd(struct ibv_pd *pd)
{
	add_user(&to_pd(pd)->users);
}

void release_pd(struct ibv_pd *pd)
{
	drop_user(&to_pd(pd)->users);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	int status = check_context(context);
	struct pd *pd = status ? NULL : calloc(1, sizeof(*pd));

	if (pd)
		status = CALL(context, alloc_pd, to_context(context)->handle, &pd->handle);
	else if (!status)
		status = ENOMEM;
	if (status) {
		free(pd);
		errno = status;
		return NULL;
	}
	pd->pd.context = context;
	pd->pd.handle = pd->handle;
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *public)
{
	struct pd *pd = to_pd(public);
	int status = check_context(public->context);

	if (status)
		return status;
	if (in_use(&pd->users))
		return EBUSY;
	if (pd->parent) {
		drop_user(&pd->parent->users);
		if (pd->td)
			drop_user(&pd->td->users);
	} else {
		status = CALL(public->context, dealloc_pd, pd->handle);
	}
	if (!status)
		free(pd);
	return status;
}

struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	int status = check_context(context);
	struct td *td;

	if (!status && attr->comp_mask)
		status = EOPNOTSUPP;
	td = status ? NULL : calloc(1, sizeof(*td));
	if (!td) {
		errno = status ? status : ENOMEM;
		return NULL;
	}
	td->td.context = context;
	return &td->td;
}

int dealloc_td(struct ibv_td *public)
{
	struct td *td = to_td(public);

	if (in_use(&td->users))
		return EBUSY;
	free(td);
	return 0;
}

/* The allocators are for what a device shares with its driver, of which there is nothing here. */
struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	int status = check_context(context);
	struct pd *pd;

	if (!status && !attr->pd)
		status = EINVAL;
	if (!status && (attr->comp_mask & ~known))
		status = EINVAL;
	pd = status ? NULL : calloc(1, sizeof(*pd));
	if (!pd) {
		errno = status ? status : ENOMEM;
		return NULL;
	}
	pd->parent = to_pd(attr->pd);
	pd->td = attr->td ? to_td(attr->td) : NULL;
	add_user(&pd->parent->users);
	if (pd->td)
		add_user(&pd->td->users);
	pd->handle = pd->parent->handle;
	pd->pd.context = context;
	pd->pd.handle = pd->handle;
	return &pd->pd;
}
