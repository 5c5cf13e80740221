/* The extended calls: work requests that are built one by one, and completions that are read field by field. */
#include <errno.h>
#include "stub.h"

static struct ibv_qp_ex *make_qp(struct ibv_context *context, enum ibv_qp_type type, uint64_t operations)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = { .max_send_wr = STUB_ROOM, .max_send_sge = 4 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = operations,
	};
	struct ibv_qp *qp = table(context)->create_qp_ex(context, &attr);
	int status = errno;

	if (qp)
		return ibv_qp_to_qp_ex(qp);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	errno = status;
	return NULL;
}

static void destroy(struct ibv_qp_ex *qp)
{
	struct ibv_qp *base = &qp->qp_base;
	struct ibv_cq *cq = base->send_cq;
	struct ibv_pd *pd = base->pd;

	CHECK(!ibv_destroy_qp(base));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
}

/* Every function of the table, in one list. */
static void check_list(struct ibv_context *context, struct stub *stub)
{
	struct ibv_qp_ex *qp = make_qp(context, IBV_QPT_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ);
	struct ibv_sge list[2] = { { 16, 17, 18 }, { 19, 20, 21 } };
	struct ibv_data_buf pieces[2] = { { "ab", 2 }, { "cde", 3 } };
	char changing[4] = "xyz", eight[8] = "8 bytes";
	struct ibv_mw mw = { 0 };
	struct ibv_mw_bind_info info = { .length = 77 };

	CHECK(qp);
	qp->wr_start(qp);
	qp->wr_id = 100;
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_send(qp);
	qp->wr_set_sge(qp, 1, 2, 3);
	qp->wr_id = 101;
	qp->wr_flags = 0;
	qp->wr_send_imm(qp, 0x11223344);
	qp->wr_set_sge_list(qp, 2, list);
	qp->wr_send_inv(qp, 7);
	qp->wr_set_inline_data(qp, changing, 3);
	memset(changing, '-', sizeof(changing)); /* it is the caller's again */
	qp->wr_rdma_write(qp, 8, 9);
	qp->wr_set_inline_data_list(qp, 2, pieces);
	qp->wr_rdma_write_imm(qp, 10, 11, 12);
	qp->wr_rdma_read(qp, 13, 14);
	qp->wr_set_sge(qp, 4, 5, 6);
	qp->wr_atomic_cmp_swp(qp, 15, 16, 17, 18);
	qp->wr_atomic_fetch_add(qp, 19, 20, 21);
	qp->wr_local_inv(qp, 22);
	qp->wr_bind_mw(qp, &mw, 23, &info);
	qp->wr_atomic_write(qp, 24, 25, eight);
	CHECK(!qp->wr_complete(qp));
	CHECK(stub->posted == 11);
	CHECK(stub->wr[0].wr_id == 100 && stub->wr[0].send_flags == IBV_SEND_SIGNALED && stub->wr[0].opcode == IBV_WR_SEND);
	CHECK(stub->wr[0].num_sge == 1 && stub->sge[0][0].lkey == 1 && stub->sge[0][0].addr == 2 && stub->sge[0][0].length == 3);
	CHECK(stub->wr[1].wr_id == 101 && !stub->wr[1].send_flags && stub->wr[1].opcode == IBV_WR_SEND_WITH_IMM);
	CHECK(stub->wr[1].imm_data == 0x11223344 && stub->wr[1].num_sge == 2 && !memcmp(stub->sge[1], list, sizeof(list)));
	CHECK(stub->wr[2].opcode == IBV_WR_SEND_WITH_INV && stub->wr[2].invalidate_rkey == 7);
	CHECK((stub->wr[2].send_flags & IBV_SEND_INLINE) && !memcmp(stub->data[2], "xyz", 3) && stub->sge[2][0].length == 3);
	CHECK(stub->wr[3].opcode == IBV_WR_RDMA_WRITE && stub->wr[3].wr.rdma.rkey == 8 && stub->wr[3].wr.rdma.remote_addr == 9);
	CHECK(!memcmp(stub->data[3], "abcde", 5) && stub->sge[3][0].length == 5);
	CHECK(stub->wr[4].opcode == IBV_WR_RDMA_WRITE_WITH_IMM && stub->wr[4].imm_data == 12 && !stub->wr[4].num_sge);
	CHECK(stub->wr[5].opcode == IBV_WR_RDMA_READ && stub->wr[5].wr.rdma.remote_addr == 14 && stub->sge[5][0].lkey == 4);
	CHECK(stub->wr[6].opcode == IBV_WR_ATOMIC_CMP_AND_SWP && stub->wr[6].wr.atomic.rkey == 15);
	CHECK(stub->wr[6].wr.atomic.remote_addr == 16 && stub->wr[6].wr.atomic.compare_add == 17 && stub->wr[6].wr.atomic.swap == 18);
	CHECK(stub->wr[7].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && stub->wr[7].wr.atomic.compare_add == 21);
	CHECK(stub->wr[8].opcode == IBV_WR_LOCAL_INV && stub->wr[8].invalidate_rkey == 22);
	CHECK(stub->wr[9].opcode == IBV_WR_BIND_MW && stub->wr[9].bind_mw.mw == &mw && stub->wr[9].bind_mw.rkey == 23);
	CHECK(stub->wr[9].bind_mw.bind_info.length == 77);
	CHECK(stub->wr[10].opcode == IBV_WR_ATOMIC_WRITE && stub->wr[10].wr.rdma.rkey == 24 && stub->sge[10][0].length == 8);
	destroy(qp);
}

/* A list that grows beyond any room that there was at first, and one that is given up. */
static void check_long(struct ibv_context *context, struct stub *stub)
{
	struct ibv_qp_ex *qp = make_qp(context, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	char data[48];

	qp->wr_start(qp);
	for (int i = 0; i < STUB_ROOM; i++) {
		memset(data, 'a' + i % 26, sizeof(data));
		qp->wr_send(qp);
		qp->wr_set_inline_data(qp, data, sizeof(data));
	}
	CHECK(!qp->wr_complete(qp) && stub->posted == STUB_ROOM);
	for (int i = 0; i < STUB_ROOM; i++)
		CHECK(stub->data[i][47] == 'a' + i % 26);
	qp->wr_start(qp);
	qp->wr_send(qp);
	qp->wr_abort(qp);
	qp->wr_start(qp);
	stub->posted = -1;
	CHECK(!qp->wr_complete(qp) && stub->posted <= 0); /* nothing to post */
	destroy(qp);
}

/* What a queue pair cannot do, and what makes no sense, is an error that wr_complete returns; nothing is posted. */
static void check_refused(struct ibv_context *context, struct stub *stub)
{
	struct ibv_qp_ex *qp = make_qp(context, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	char large[4096] = "";

	stub->posted = -1;
	qp->wr_start(qp);
	qp->wr_send_tso(qp, large, 14, 100);
	CHECK(qp->wr_complete(qp) == EOPNOTSUPP);
	qp->wr_start(qp);
	qp->wr_send(qp);
	qp->wr_set_xrc_srqn(qp, 1);
	CHECK(qp->wr_complete(qp) == EOPNOTSUPP);
	qp->wr_start(qp);
	qp->wr_set_sge(qp, 1, 2, 3); /* of no request */
	CHECK(qp->wr_complete(qp) == EINVAL);
	qp->wr_start(qp);
	qp->wr_send(qp);
	qp->wr_set_inline_data(qp, large, sizeof(large)); /* more than max_inline_data */
	CHECK(qp->wr_complete(qp) == EINVAL);
	CHECK(stub->posted == -1);
	qp->wr_start(qp);
	for (int i = 0; i <= STUB_ROOM; i++)
		qp->wr_send(qp); /* one more than max_send_wr */
	CHECK(qp->wr_complete(qp) == ENOMEM && stub->posted == -1);
	fail_next(stub, "post_send", ENOMEM, 1);
	qp->wr_start(qp);
	qp->wr_send(qp);
	CHECK(qp->wr_complete(qp) == ENOMEM);
	destroy(qp);
	errno = 0;
	CHECK(!make_qp(context, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ) && errno == EOPNOTSUPP);
}

static void check_datagrams(struct ibv_context *context, struct stub *stub)
{
	struct ibv_qp_ex *qp = make_qp(context, IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	struct ibv_ah ah = { 0 };

	qp->wr_start(qp);
	qp->wr_send(qp);
	qp->wr_set_ud_addr(qp, &ah, 5, 6);
	CHECK(!qp->wr_complete(qp));
	CHECK(stub->wr[0].wr.ud.ah == &ah && stub->wr[0].wr.ud.remote_qpn == 5 && stub->wr[0].wr.ud.remote_qkey == 6);
	destroy(qp);
}

static void check_completions(struct ibv_context *context, struct stub *stub)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS }, odd = { .cqe = 8, .wc_flags = ~0ull };
	struct ibv_cq_ex *cq = table(context)->create_cq_ex(context, &attr);
	struct ibv_poll_cq_attr none = { 0 }, unknown = { .comp_mask = 1 };
	struct ibv_wc_tm_info info;

	CHECK(cq);
	errno = 0;
	CHECK(!table(context)->create_cq_ex(context, &odd) && errno == EOPNOTSUPP);
	CHECK(cq->start_poll(cq, &unknown) == EINVAL);
	CHECK(cq->start_poll(cq, &none) == ENOENT);
	stub->completions = 2;
	stub->wc[0] = (struct ibv_wc){
		.wr_id = 1, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV, .byte_len = 3, .imm_data = 4, .qp_num = 5, .src_qp = 6,
		.wc_flags = IBV_WC_WITH_IMM, .slid = 7, .sl = 8, .dlid_path_bits = 9,
	};
	stub->wc[1] = (struct ibv_wc){ .wr_id = 2, .status = IBV_WC_RETRY_EXC_ERR, .vendor_err = 10 };
	CHECK(!cq->start_poll(cq, &none));
	CHECK(cq->wr_id == 1 && cq->status == IBV_WC_SUCCESS && cq->read_opcode(cq) == IBV_WC_RECV && cq->read_byte_len(cq) == 3);
	CHECK(cq->read_imm_data(cq) == 4 && cq->read_qp_num(cq) == 5 && cq->read_src_qp(cq) == 6);
	CHECK(cq->read_wc_flags(cq) == IBV_WC_WITH_IMM && cq->read_slid(cq) == 7 && cq->read_sl(cq) == 8 && cq->read_dlid_path_bits(cq) == 9);
	CHECK(cq->read_completion_ts(cq) == 1001 && !cq->read_cvlan(cq) && !cq->read_flow_tag(cq));
	cq->read_tm_info(cq, &info);
	CHECK(!cq->next_poll(cq));
	CHECK(cq->wr_id == 2 && cq->status == IBV_WC_RETRY_EXC_ERR && cq->read_vendor_err(cq) == 10);
	CHECK(cq->next_poll(cq) == ENOENT);
	cq->end_poll(cq);
	fail_next(stub, "poll_cq", EIO, 1);
	CHECK(cq->start_poll(cq, &none) == EIO); /* and holds no lock */
	CHECK(cq->start_poll(cq, &none) == ENOENT);
	CHECK(!ibv_destroy_cq((struct ibv_cq *)cq));
}

int main(void)
{
	struct ibv_context *context = open_one();
	struct stub *stub = find_stub();

	check_list(context, stub);
	check_long(context, stub);
	check_refused(context, stub);
	check_datagrams(context, stub);
	check_completions(context, stub);
	CHECK(!ibv_close_device(context));
	CHECK(!stub->interruptible);
	return 0;
}
