/* Making and destroying objects: errno, EBUSY in the wrong order, nothing lost. */
#include <errno.h>
#include "stub.h"

static void check_device(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n), **again = ibv_get_device_list(NULL);

	CHECK(n == 1 && list[0] && !list[1]);
	CHECK(list[0] == again[0]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "ndk0"));
	for (int i = 0; i < 256; i++)
		CHECK(!((char *)(list[0] + 1))[i]);
	ibv_free_device_list(list);
	ibv_free_device_list(again);
	CHECK(!dlopen(getenv("NDKLAB_RNIC_LIBRARY"), RTLD_NOW | RTLD_NOLOAD)); /* the list does not load it */
}

static void check_queries(struct ibv_context *context)
{
	struct {
		struct ibv_device_attr_ex attr;
		char more[64]; /* of a program compiled with newer headers */
	} ex;
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[4], entry;
	struct ibv_device_attr attr;
	union ibv_gid gid;
	__be16 pkey;

	CHECK(!ibv_query_device(context, &attr) && attr.max_qp == 1234);
	memset(&ex, 0xff, sizeof(ex));
	CHECK(!table(context)->query_device_ex(context, NULL, &ex.attr, sizeof(ex)));
	CHECK(ex.attr.phys_port_cnt_ex == 1 && !ex.more[0] && !ex.more[63]);
	CHECK(table(context)->query_device_ex(context, &input, &ex.attr, sizeof(ex)) == EINVAL);
	CHECK(table(context)->query_device_ex(context, NULL, &ex.attr, 8) == EINVAL);

	memset(&port, 0xff, sizeof(port));
	CHECK(!ibv_query_port(context, 1, &port) && port.gid_tbl_len == 16 && port.port_cap_flags2 == 0xffff);
	CHECK(!table(context)->query_port(context, 1, &port, sizeof(port)) && port.port_cap_flags2 == 4);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);

	CHECK(!ibv_query_gid(context, 1, 0, &gid) && gid.raw[15] == 1 && gid.raw[11] == 0xff);
	CHECK(!ibv_query_gid(context, 1, 9, &gid) && !gid.raw[15]);
	errno = 0;
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1 && errno == EINVAL);
	CHECK(!_ibv_query_gid_ex(context, 1, 1, &entry, 0, sizeof(entry)));
	CHECK(entry.gid_index == 1 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex == 7);
	CHECK(_ibv_query_gid_ex(context, 1, 2, &entry, 0, sizeof(entry)) == ENODATA);
	CHECK(_ibv_query_gid_ex(context, 1, 0, &entry, 1, sizeof(entry)) == EOPNOTSUPP);
	CHECK(_ibv_query_gid_table(context, entries, 4, 0, sizeof(entry)) == 2);
	CHECK(_ibv_query_gid_table(context, entries, 1, 0, sizeof(entry)) == -EINVAL);

	CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	CHECK(!ibv_get_pkey_index(context, 1, 0xffff) && ibv_get_pkey_index(context, 1, 1) == -1);
}

static void check_domains(struct ibv_context *context)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = table(context)->alloc_td(context, &td_attr);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = table(context)->alloc_parent_domain(context, &attr);
	struct ibv_mr *mr;
	char memory[64];

	CHECK(td && pd && parent);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(table(context)->dealloc_td(td) == EBUSY);
	mr = ibv_reg_mr(parent, memory, sizeof(memory), 1);
	CHECK(mr && mr->pd == parent);
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(parent));
	CHECK(!table(context)->dealloc_td(td));
	CHECK(!ibv_dealloc_pd(pd));
	attr.pd = NULL;
	errno = 0;
	CHECK(!table(context)->alloc_parent_domain(context, &attr) && errno == EINVAL);
}

static void check_memory(struct ibv_context *context, struct stub *stub)
{
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	struct ibv_mr *mr;
	char memory[64];

	fail_next(stub, "reg_mr", ENOMEM, 1);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, memory, 64, 1) && errno == ENOMEM);
	mr = ibv_reg_mr_iova2(pd, memory, 64, 0x1000, 1 | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr && mr->lkey == 0x1001 && mr->addr == memory && mr->length == 64);
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	fail_next(stub, "rereg_mr", EINVAL, 1);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_CMD);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0) && mr->pd == other && mr->rkey == 0x2002);
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(ibv_dealloc_pd(other) == EBUSY);
	fail_next(stub, "dereg_mr", EBUSY, 1);
	CHECK(ibv_dereg_mr(mr) == EBUSY);
	CHECK(!ibv_dereg_mr(mr));
	mr = table(context)->alloc_null_mr(other);
	CHECK(mr && !mr->addr);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(other));
}

static void check_windows(struct ibv_context *context, struct ibv_qp *qp, struct stub *stub)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mw *mw = context->ops.alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .wr_id = 5, .bind_info = { .length = 9 } };

	CHECK(mw && mw->rkey == 0x30ff && mw->type == IBV_MW_TYPE_1);
	CHECK(!context->ops.bind_mw(qp, mw, &bind));
	CHECK(mw->rkey == 0x3000 && stub->wr[0].bind_mw.rkey == 0x3000 && stub->wr[0].bind_mw.mw == mw);
	CHECK(stub->wr[0].opcode == IBV_WR_BIND_MW && stub->wr[0].wr_id == 5);
	fail_next(stub, "post_send", ENOMEM, 1);
	CHECK(context->ops.bind_mw(qp, mw, &bind) == ENOMEM && mw->rkey == 0x3000);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!context->ops.dealloc_mw(mw));
	CHECK(!ibv_dealloc_pd(pd));
}

static void check_queues(struct ibv_context *context, struct stub *stub)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, context, channel, 0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC }, told;
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp *qp;

	CHECK(channel && channel->refcnt == 1 && cq && cq->cqe == 8 && srq && srq_attr.attr.max_wr == 128);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	errno = 0;
	CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_cq(context, 1, NULL, NULL, 1) && errno == EINVAL);
	qp = ibv_create_qp(pd, &attr);
	CHECK(qp && qp->qp_num == 0x17 && attr.cap.max_inline_data == 64 && !ibv_qp_to_qp_ex(qp));
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE) && qp->state == IBV_QPS_INIT);
	fail_next(stub, "modify_qp", EINVAL, 1);
	state.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &state, IBV_QP_STATE) == EINVAL && qp->state == IBV_QPS_INIT);
	CHECK(!ibv_query_qp(qp, &state, 0, &told));
	CHECK(told.send_cq == cq && told.srq == srq && told.cap.max_inline_data == 64 && qp->state == IBV_QPS_RTS);
	check_windows(context, qp, stub);
	fail_next(stub, "destroy_cq", EBUSY, 1);
	CHECK(ibv_destroy_cq(cq) == EBUSY && channel->refcnt == 1);
	fail_next(stub, "destroy_srq", EBUSY, 1);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(!ibv_destroy_qp(qp));
	attr.qp_type = IBV_QPT_RAW_PACKET;
	errno = 0;
	CHECK(!ibv_create_qp(pd, &attr) && errno == EOPNOTSUPP);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_resize_cq(cq, 16) && cq->cqe == 16);
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pd));
}

/* The header of IPv4 that RFC 1071's arithmetic makes right. */
static void check_addresses(struct ibv_context *context)
{
	struct ibv_grh grh = { 0 };
	uint8_t ip[20] = { 0x45, 2, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_ah_attr attr;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_ah *ah;
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = ~((sum & 0xffff) + (sum >> 16));
	ip[10] = sum >> 8;
	ip[11] = sum;
	memcpy((char *)&grh + 20, ip, 20);
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr));
	CHECK(attr.is_global && attr.grh.sgid_index == 0 && attr.grh.traffic_class == 2 && attr.port_num == 1);
	CHECK(attr.grh.dgid.raw[10] == 0xff && attr.grh.dgid.raw[12] == 10 && attr.grh.dgid.raw[15] == 9);
	ah = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
	CHECK(ah && ah->pd == pd);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_destroy_ah(ah));
	CHECK(!ibv_dealloc_pd(pd));

	memset(&grh, 0, sizeof(grh));
	grh.dgid = (union ibv_gid){ .raw = { 0xfe, 0x80, [15] = 1 } };
	grh.sgid = (union ibv_gid){ .raw = { 0xfe, 0x80, [15] = 2 } };
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr));
	CHECK(attr.grh.sgid_index == 1 && attr.grh.dgid.raw[15] == 2);
	grh.dgid.raw[15] = 77;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == -1);
}

int main(void)
{
	struct ibv_context *context;
	struct stub *stub;

	check_device();
	context = open_one();
	stub = find_stub();
	CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED && !ibv_fork_init());
	check_queries(context);
	check_domains(context);
	check_memory(context, stub);
	check_queues(context, stub);
	check_addresses(context);
	fail_next(stub, "open", ENOSPC, 1);
	errno = 0;
	CHECK(!ibv_open_device(context->device) && errno == ENOSPC);
	CHECK(!ibv_close_device(context));
	errno = 0;
	CHECK(ibv_close_device(context) == -1 && errno == EINVAL); /* again */
	CHECK(!stub->interruptible);
	return 0;
}
