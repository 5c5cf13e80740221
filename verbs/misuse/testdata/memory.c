/* Memory that is not there any more, or may not be written, though it is registered. The peer is told as of any
 * other access that is not granted; nobody gets SIGSEGV. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include "misuse.h"

/* How memory goes. */
static void unmap(char *memory)
{
	CHECK(!munmap(memory, SIZE));
}

static void protect(char *memory)
{
	CHECK(!mprotect(memory, SIZE, PROT_READ));
}

static void forbid(char *memory)
{
	CHECK(!mprotect(memory, SIZE, PROT_NONE));
}

/* A file's pages behind its end: SIGBUS. */
static void truncate_file(char *memory)
{
	int file = memfd_create("memory", MFD_CLOEXEC);

	CHECK(file >= 0 && !ftruncate(file, SIZE));
	CHECK(mmap(memory, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == memory);
	memory[0] = 1;
	CHECK(!ftruncate(file, 0));
	close(file);
}

static void (*const loses[])(char *) = { unmap, protect, forbid, truncate_file };
#define LOSES (sizeof(loses) / sizeof(loses[0]))

static void finish(struct end pair[2])
{
	struct end other[2];

	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(pair[i].qp));
		CHECK(!ibv_dereg_mr(pair[i].mr));
		CHECK(!ibv_destroy_cq(pair[i].cq));
		CHECK(!ibv_dealloc_pd(pair[i].pd));
	}
	make_pair(other); /* the device goes on */
	exchange(other);
	CHECK(!ibv_close_device(other[0].context));
	CHECK(!ibv_close_device(pair[0].context));
}

/* A peer's request of an operation, to memory that is lost. */
static void lose_target(enum ibv_wr_opcode opcode, uint32_t length, bool reads)
{
	for (size_t i = 0; i < LOSES; i++) {
		struct ibv_qp_init_attr init;
		struct ibv_async_event event;
		struct ibv_qp_attr attr;
		struct end pair[2];

		if (reads && loses[i] == protect)
			continue;
		make_pair(pair);
		loses[i](pair[1].memory);
		CHECK(!post(&pair[0], address_of(&pair[1]), opcode, length));
		CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_REM_ACCESS_ERR);
		CHECK(!ibv_get_async_event(pair[1].context, &event));
		CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == pair[1].qp);
		ibv_ack_async_event(&event);
		CHECK(!ibv_query_qp(pair[1].qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
		finish(pair);
	}
}

static void lost_write_target(void)
{
	lose_target(IBV_WR_RDMA_WRITE, 64, false);
	lose_target(IBV_WR_RDMA_WRITE, SIZE, false);
}

static void lost_read_source(void)
{
	lose_target(IBV_WR_RDMA_READ, 64, true);
	lose_target(IBV_WR_RDMA_READ, SIZE, true);
}

static void lost_atomic_target(void)
{
	lose_target(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, false);
	lose_target(IBV_WR_ATOMIC_CMP_AND_SWP, 8, false);
}

/* Our own request's memory: what is sent, and where answers go. */
static void lose_own(enum ibv_wr_opcode opcode, uint32_t length, bool reads)
{
	for (size_t i = 0; i < LOSES; i++) {
		struct end pair[2];

		if (reads && loses[i] == protect)
			continue;
		make_pair(pair);
		CHECK(!post_receive(&pair[1], SIZE));
		loses[i](pair[0].memory);
		CHECK(!post(&pair[0], address_of(&pair[1]), opcode, length));
		CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_LOC_PROT_ERR);
		finish(pair);
	}
}

static void lost_source(void)
{
	lose_own(IBV_WR_SEND, 64, true);
	lose_own(IBV_WR_SEND, SIZE, true);
	lose_own(IBV_WR_RDMA_WRITE, SIZE, true);
}

static void lost_read_sink(void)
{
	lose_own(IBV_WR_RDMA_READ, 64, false);
	lose_own(IBV_WR_RDMA_READ, SIZE, false);
	lose_own(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, false);
}

static void lost_receive(void)
{
	for (size_t i = 0; i < LOSES; i++) {
		struct end pair[2];

		make_pair(pair);
		CHECK(!post_receive(&pair[1], SIZE));
		loses[i](pair[1].memory);
		CHECK(!post(&pair[0], address_of(&pair[1]), IBV_WR_SEND, SIZE));
		CHECK_STATUS(await_completion(pair[1].cq), IBV_WC_LOC_PROT_ERR);
		CHECK_STATUS(await_completion(pair[0].cq), IBV_WC_REM_OP_ERR);
		finish(pair);
	}
}

/* Nobody tells a datagram's sender what became of it, but for its own memory. */
static void lost_datagram(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD, .sq_sig_all = 1, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_ah_attr address = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

	for (size_t i = 0; i < LOSES; i++) {
		struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .num_sge = 1 }, *bad;
		struct ibv_sge sge = { .length = 64 };
		struct end end;

		if (loses[i] == protect)
			continue;
		make_end(&end, open_device());
		attr.send_cq = attr.recv_cq = end.cq;
		CHECK(!ibv_destroy_qp(end.qp) && (end.qp = ibv_create_qp(end.pd, &attr)));
		CHECK(!ibv_modify_qp(end.qp, &state, init));
		state.qp_state = IBV_QPS_RTR;
		CHECK(!ibv_modify_qp(end.qp, &state, IBV_QP_STATE));
		state.qp_state = IBV_QPS_RTS;
		CHECK(!ibv_modify_qp(end.qp, &state, IBV_QP_STATE | IBV_QP_SQ_PSN));
		address.grh.dgid = address_of(&end).gid;
		CHECK(wr.wr.ud.ah = ibv_create_ah(end.pd, &address));
		wr.wr.ud.remote_qpn = end.qp->qp_num;
		wr.wr.ud.remote_qkey = 7;
		sge.addr = (uintptr_t)end.memory;
		sge.lkey = end.mr->lkey;
		wr.sg_list = &sge;
		CHECK(!ibv_post_send(end.qp, &wr, &bad));
		CHECK_STATUS(await_completion(end.cq), IBV_WC_SUCCESS);
		loses[i](end.memory);
		CHECK(!ibv_post_send(end.qp, &wr, &bad));
		CHECK_STATUS(await_completion(end.cq), IBV_WC_LOC_PROT_ERR);
		CHECK(!ibv_destroy_ah(wr.wr.ud.ah));
		close_end(&end);
		CHECK(!ibv_close_device(end.context));
	}
}

/* Inline data is read while it is posted. */
static void lost_inline(void)
{
	struct ibv_sge sge = { .length = 32 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct end pair[2];

	make_pair(pair);
	sge.addr = (uintptr_t)mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bad = NULL;
	CHECK(ibv_post_send(pair[0].qp, &wr, &bad) == EFAULT && bad == &wr);
	exchange(pair);
	finish(pair);
}

static void *unmap_soon(void *memory)
{
	usleep(rand() % 3000);
	CHECK(!munmap(memory, SIZE));
	return NULL;
}

/* Memory that goes while a stream is under way, in either direction. Of several requests the first may be flushed, for
 * the sake of a later one; and what says why may be lost with the packets that were being made. */
static void lost_in_between(void)
{
	for (int i = 0; i < 80; i++) {
		struct end pair[2];
		pthread_t thread;
		struct ibv_wc wc;
		bool reads = i & 1;
		int left = 0;

		make_pair(pair);
		CHECK(!pthread_create(&thread, NULL, unmap_soon, pair[(i >> 1) & 1].memory));
		do {
			for (; left < DEPTH; left++)
				if (post(&pair[0], address_of(&pair[1]), reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, SIZE))
					break;
			wc = await_completion(pair[0].cq);
			left--;
		} while (wc.status == IBV_WC_SUCCESS);
		while (left-- && (wc.status == IBV_WC_WR_FLUSH_ERR))
			wc = await_completion(pair[0].cq);
		if (wc.status != IBV_WC_REM_ACCESS_ERR && wc.status != IBV_WC_RETRY_EXC_ERR)
			CHECK_STATUS(wc, IBV_WC_LOC_PROT_ERR);
		pthread_join(thread, NULL);
		for (int j = 0; j < 2; j++)
			CHECK(!ibv_destroy_qp(pair[j].qp) && !ibv_dereg_mr(pair[j].mr));
		munmap(pair[!((i >> 1) & 1)].memory, SIZE);
		CHECK(!ibv_close_device(pair[0].context));
	}
}

const struct group memory_cases[] = {
	{ "lost-write-target", lost_write_target }, { "lost-read-source", lost_read_source },
	{ "lost-atomic-target", lost_atomic_target }, { "lost-source", lost_source },
	{ "lost-read-sink", lost_read_sink },	    { "lost-receive", lost_receive },
	{ "lost-datagram", lost_datagram },
	{ "lost-inline", lost_inline },		    { "lost-in-between", lost_in_between },
	{ 0 },
};
