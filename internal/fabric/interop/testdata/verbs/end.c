/* An end: its objects, its requests and their completions. */
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"

enum {
	AREA = SLOTS * SLOT,
	DEPTH = 64,  /* of the queues */
	INLINE = 64, /* bytes */
	PSN = 0xfffff0, /* near the end of its range */
};

/* The device that has the GID. */
static void open_device(struct end *end, const union ibv_gid *gid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	union ibv_gid found;

	CHECK(list);
	for (struct ibv_device **device = list; *device; device++) {
		end->context = ibv_open_device(*device);
		CHECK(end->context);
		for (int index = 0; !ibv_query_gid(end->context, PORT, index, &found) && index < 16; index++) {
			if (!memcmp(&found, gid, sizeof(found))) {
				end->gid_index = index;
				ibv_free_device_list(list);
				return;
			}
		}
		CHECK(!ibv_close_device(end->context));
	}
	CHECK(!"a device has the address");
}

void open_end(struct end *end, const struct test *test, const union ibv_gid *gid)
{
	struct ibv_qp_init_attr init = {
		.qp_type = test->type,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = INLINE},
	};

	end->type = test->type;
	open_device(end, gid);
	end->pd = ibv_alloc_pd(end->context);
	CHECK(end->pd);
	end->sent = mmap(NULL, 3 * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(end->sent != MAP_FAILED);
	end->received = end->sent + AREA;
	end->writable = end->received + AREA;
	end->mr = ibv_reg_mr(end->pd, end->sent, 3 * AREA, IBV_ACCESS_LOCAL_WRITE | test->access);
	CHECK(end->mr);
	end->cq = ibv_create_cq(end->context, 2 * DEPTH, NULL, NULL, 0);
	CHECK(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
	end->here = (struct address){
		.gid = *gid,
		.qpn = end->qp->qp_num,
		.psn = PSN,
		.rkey = end->mr->rkey,
		.writable = (uintptr_t)end->writable,
	};
}

void close_end(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp));
	CHECK(!ibv_destroy_cq(end->cq));
	CHECK(!ibv_dereg_mr(end->mr));
	CHECK(!munmap(end->sent, 3 * AREA));
	CHECK(!ibv_dealloc_pd(end->pd));
	CHECK(!ibv_close_device(end->context));
}

/* To Init and from there to Ready to Send, with the attributes that ibv_modify_qp(3) asks for. */
void connect_end(struct end *end)
{
	bool datagrams = end->type == IBV_QPT_UD, reliable = end->type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   (reliable ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0),
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = end->there.qpn,
		.rq_psn = end->there.psn,
		.sq_psn = end->here.psn,
		.max_rd_atomic = READS,
		.max_dest_rd_atomic = READS,
		.min_rnr_timer = 12, /* 0.64 ms */
		.timeout = 17,       /* 0.54 s */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = PORT,
			    .grh = {.dgid = end->there.gid, .sgid_index = end->gid_index, .hop_limit = 64}},
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	init |= datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (!datagrams)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (reliable) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	CHECK(!ibv_modify_qp(end->qp, &attr, init));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(end->qp, &attr, rtr));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(end->qp, &attr, rts));
}

void post_receives(struct end *end, int count, uint32_t length)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge data = {(uintptr_t)(end->received + i * SLOT), length, end->mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = i, .sg_list = &data, .num_sge = 1}, *bad;

		CHECK(!end->context->ops.post_recv(end->qp, &receive, &bad));
	}
}

int try_post(struct end *end, struct ibv_send_wr *request, int slot, uint32_t length)
{
	struct ibv_sge data = {(uintptr_t)(end->sent + slot * SLOT), length, end->mr->lkey};
	struct ibv_send_wr *bad;

	request->sg_list = &data;
	request->num_sge = length > 0;
	return end->context->ops.post_send(end->qp, request, &bad);
}

void post(struct end *end, struct ibv_send_wr *request, int slot, uint32_t length)
{
	CHECK(!try_post(end, request, slot, length));
}

struct ibv_wc completion(struct end *end)
{
	struct ibv_wc wc;
	int n;

	while (!(n = end->context->ops.poll_cq(end->cq, 1, &wc)))
		sched_yield();
	CHECK(n == 1);
	return wc;
}

struct ibv_wc success(struct end *end)
{
	struct ibv_wc wc = completion(end);

	CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
	CHECK_EQUAL(wc.qp_num, end->qp->qp_num);
	return wc;
}

void meet(struct end *end)
{
	char byte = 0;

	CHECK(write(end->peer, &byte, 1) == 1);
	CHECK(read(end->peer, &byte, 1) == 1);
}

static uint8_t pattern(uint32_t i, int message, bool first) { return i * 11 + message * 37 + first + 1; }

void fill(uint8_t *bytes, uint32_t length, int message, bool first)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = pattern(i, message, first);
}

void check(const uint8_t *bytes, uint32_t length, int message, bool first)
{
	for (uint32_t i = 0; i < length; i++)
		CHECK_EQUAL(bytes[i], pattern(i, message, first));
}
