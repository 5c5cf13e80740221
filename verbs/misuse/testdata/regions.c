/* Memory that is not simply the program's: of the device, of none, of whatever there is. */
#include "misuse.h"
#include <sys/mman.h>

/* Device memory is as large as the device says, all in all, and reached in words. */
static void device_memory(void)
{
	struct ibv_device_attr_ex device;
	struct ibv_alloc_dm_attr attr = { .length = 100 }, wrong;
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_dm *dm, *rest;
	struct ibv_mr *mr;
	char data[100] = "0123";

	CHECK(pd && !ibv_query_device_ex(context, NULL, &device) && device.max_dm_size > 100);
	for (int i = 0; i < 5; i++) {
		wrong = attr;
		switch (i) {
		case 0: wrong.length = 0; break;
		case 1: wrong.length = device.max_dm_size + 1; break;
		case 2: wrong.length = SIZE_MAX; break;
		case 3: wrong.log_align_req = 200; break;
		case 4: wrong.comp_mask = 1; break;
		}
		CHECK(!ibv_alloc_dm(context, &wrong) && errno == EINVAL);
	}
	dm = ibv_alloc_dm(context, &attr);
	wrong = (struct ibv_alloc_dm_attr){ .length = device.max_dm_size };
	CHECK(dm && !ibv_alloc_dm(context, &wrong) && errno == ENOMEM);
	wrong.length -= attr.length;
	rest = ibv_alloc_dm(context, &wrong);
	CHECK(rest && !ibv_free_dm(rest));

	CHECK(!ibv_memcpy_to_dm(dm, 96, data, 4) && !ibv_memcpy_from_dm(data + 4, dm, 96, 4) && !strcmp(data, "01230123"));
	CHECK(!ibv_memcpy_to_dm(dm, 100, data, 0));
	CHECK(ibv_memcpy_to_dm(dm, 2, data, 4) == EINVAL && ibv_memcpy_from_dm(data, dm, 0, 2) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 100, data, 4) == EINVAL && ibv_memcpy_from_dm(data, dm, UINT64_MAX - 3, 8) == EINVAL);

	CHECK(!ibv_reg_dm_mr(pd, dm, 0, 100, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(pd, dm, 50, 51, IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
	CHECK(!ibv_reg_dm_mr(pd, dm, UINT64_MAX, 2, IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
	mr = ibv_reg_dm_mr(pd, dm, 50, 50, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, data, 100, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* Reads what a peer has at an address into the beginning of an end's memory. */
static enum ibv_wc_status read_from(struct end *end, uint64_t address, uint32_t rkey)
{
	struct address from = { .memory = address, .rkey = rkey };

	CHECK(!post(end, from, IBV_WR_RDMA_READ, 8));
	return await_completion(end->cq).status;
}

/* An engine that is apart has none, and says so: it would have to reserve as many addresses as a process has. */
static void refuse_implicit(void)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_device_attr_ex device;

	CHECK(pd && !ibv_query_device_ex(context, NULL, &device));
	CHECK(!(device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(!ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* An implicit region is what is mapped, and nothing else: neither what was, nor what never is. */
static void implicit_region(void)
{
	const uint64_t never[] = { 0, 8, (1ull << 47) - 8, 1ull << 47, UINT64_MAX - 15 };
	const int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

	if (engine_is_apart()) {
		refuse_implicit();
		return;
	}
	for (size_t i = 0; i <= sizeof(never) / sizeof(never[0]); i++) {
		struct end pair[2];
		struct ibv_mr *implicit;
		char *later;

		make_pair(pair);
		implicit = ibv_reg_mr(pair[1].pd, NULL, SIZE_MAX, access);
		later = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(implicit && later != MAP_FAILED);
		strcpy(later, "1234567");
		CHECK(read_from(&pair[0], (uintptr_t)later, implicit->rkey) == IBV_WC_SUCCESS);
		CHECK(!strcmp(pair[0].memory, "1234567"));
		CHECK(!munmap(later, SIZE));
		CHECK(read_from(&pair[0], i ? never[i - 1] : (uintptr_t)later, implicit->rkey) == IBV_WC_REM_ACCESS_ERR);
		CHECK(!ibv_dereg_mr(implicit));
		for (int j = 0; j < 2; j++)
			CHECK(!ibv_destroy_qp(pair[j].qp) && !ibv_dereg_mr(pair[j].mr));
		CHECK(!ibv_close_device(pair[0].context));
	}
}

/* A null region takes what comes and has zeros, at any address. */
static void null_region(void)
{
	struct end pair[2];
	struct ibv_mr *null;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 }, *bad;

	make_pair(pair);
	null = ibv_alloc_null_mr(pair[0].pd);
	CHECK(null);
	sge = (struct ibv_sge){ .addr = UINT64_MAX - SIZE, .length = SIZE, .lkey = null->lkey };
	wr.wr.rdma.remote_addr = address_of(&pair[1]).memory;
	wr.wr.rdma.rkey = address_of(&pair[1]).rkey;
	memset(pair[1].memory, 7, SIZE);
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_post_send(pair[0].qp, &wr, &bad));
		CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_SUCCESS);
		CHECK(pair[1].memory[SIZE - 1] == (i ? 0 : 7));
		wr.opcode = IBV_WR_RDMA_WRITE;
	}
	CHECK(!ibv_dereg_mr(null));
	exchange(pair);
	for (int j = 0; j < 2; j++)
		CHECK(!ibv_destroy_qp(pair[j].qp) && !ibv_dereg_mr(pair[j].mr));
	CHECK(!ibv_close_device(pair[0].context));
}

const struct group region_cases[] = {
	{ "device-memory", device_memory },
	{ "implicit-region", implicit_region },
	{ "null-region", null_region },
	{ 0 },
};
