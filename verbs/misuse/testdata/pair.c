/* Two ends in one process, and what is done with them. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include "misuse.h"

struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(context);
	return context;
}

bool engine_is_apart(void)
{
	const char *where = getenv("NDKLAB_RNIC");

	return where && !strcmp(where, "process");
}

/* Memory where the kernel places nothing by itself: it fills the address space from the top. When such memory is
 * unmapped there is nothing in its place, as there may be elsewhere, which peers would write to. */
static char *map_memory(void)
{
	static uintptr_t next = (uintptr_t)1 << 44; /* atomic */
	void *at = (void *)__atomic_fetch_add(&next, 2 * SIZE, __ATOMIC_RELAXED);

	CHECK(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
	return at;
}

void make_end(struct end *end, struct ibv_context *context)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { DEPTH, DEPTH, 4, 4, 64 },
	};
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};

	end->context = context;
	CHECK(end->pd = ibv_alloc_pd(context));
	CHECK(attr.send_cq = attr.recv_cq = end->cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0));
	CHECK(end->qp = ibv_create_qp(end->pd, &attr));
	end->memory = map_memory();
	CHECK(end->mr = ibv_reg_mr(end->pd, end->memory, SIZE,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND));
	CHECK(!ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

void close_end(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp));
	CHECK(!ibv_dereg_mr(end->mr));
	CHECK(!ibv_destroy_cq(end->cq));
	CHECK(!ibv_dealloc_pd(end->pd));
	munmap(end->memory, SIZE);
}

struct address address_of(struct end *end)
{
	struct address address = {
		.qpn = end->qp->qp_num,
		.rkey = end->mr->rkey,
		.memory = (uintptr_t)end->memory,
	};

	CHECK(!ibv_query_gid(end->context, 1, 0, &address.gid));
	return address;
}

void connect_end(struct end *end, struct address peer)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer.qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 64 } },
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14, /* 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	CHECK(!ibv_modify_qp(end->qp, &receive,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_modify_qp(end->qp, &send,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}

void make_pair(struct end pair[2])
{
	struct ibv_context *context = open_device();

	make_end(&pair[0], context);
	make_end(&pair[1], context);
	connect_end(&pair[0], address_of(&pair[1]));
	connect_end(&pair[1], address_of(&pair[0]));
}

int post(struct end *end, struct address to, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, length, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = opcode, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = to.memory;
		wr.wr.atomic.rkey = to.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = to.memory;
		wr.wr.rdma.rkey = to.rkey;
	}
	return ibv_post_send(end->qp, &wr, &bad);
}

int post_receive(struct end *end, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, length, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(end->qp, &wr, &bad);
}

struct ibv_wc await_completion(struct ibv_cq *cq)
{
	time_t late = time(NULL) + 20;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		CHECK(time(NULL) < late);
	CHECK(n == 1);
	return wc;
}

void exchange(struct end pair[2])
{
	struct ibv_wc wc;

	memset(pair[0].memory, 'x', 64);
	memset(pair[1].memory, 0, 64);
	CHECK(!post_receive(&pair[1], 64));
	CHECK(!post(&pair[0], address_of(&pair[1]), IBV_WR_SEND, 64));
	wc = await_completion(pair[1].cq);
	CHECK_STATUS(wc, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 64);
	CHECK(pair[1].memory[63] == 'x');
	wc = await_completion(pair[0].cq);
	CHECK_STATUS(wc, IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_SEND);
}

int in_child(void (*f)(void *), void *argument)
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (!child) {
		f(argument);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}
