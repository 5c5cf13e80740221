/* Cases of connections: immediate data, atomic operations, and what a responder refuses. */
#include <arpa/inet.h>
#include <errno.h>

#include "verbs.h"

/* Of messages: of no packet's payload, of part of one, of one, of two and of five. */
static const uint32_t lengths[] = {0, 1, 8, MTU, MTU + 1, 5000};

enum { MESSAGES = 2 * sizeof(lengths) / sizeof(*lengths) };

/* Every other message is written. */
static bool written(int message) { return message % 2; }

static uint32_t immediate(int message) { return 0xc0ffee00 + message; }

static void send_immediates(struct end *end)
{
	for (int i = 0; i < MESSAGES; i++) {
		uint32_t length = lengths[i / 2];
		struct ibv_send_wr request = {
			.wr_id = i,
			.opcode = written(i) ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM,
			.imm_data = htonl(immediate(i)),
			.send_flags = length == 8 ? IBV_SEND_INLINE : 0,
			.wr.rdma = {.remote_addr = end->there.writable + i * SLOT, .rkey = end->there.rkey},
		};
		struct ibv_wc wc;

		fill(end->sent + i * SLOT, length, i, end->first);
		post(end, &request, i, length);
		wc = success(end);
		CHECK_EQUAL(wc.wr_id, i);
		CHECK_EQUAL(wc.opcode, written(i) ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
	}
}

static void receive_immediates(struct end *end)
{
	for (int i = 0; i < MESSAGES; i++) {
		const uint8_t *data = (written(i) ? end->writable : end->received) + i * SLOT;
		struct ibv_wc wc = success(end);

		CHECK_EQUAL(wc.wr_id, i);
		CHECK_EQUAL(wc.opcode, written(i) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
		CHECK_EQUAL(wc.byte_len, lengths[i / 2]);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
		CHECK_EQUAL(ntohl(wc.imm_data), immediate(i));
		check(data, wc.byte_len, i, !end->first);
		CHECK_EQUAL(data[wc.byte_len], 0); /* the first byte behind */
	}
}

static void immediates(struct end *end)
{
	post_receives(end, MESSAGES, SLOT);
	meet(end);
	for (int turn = 0; turn < 2; turn++) {
		if (end->first == !turn)
			send_immediates(end);
		else
			receive_immediates(end);
		meet(end);
	}
}

/* The word that is operated on begins near the end of its range; beside it are others that must stay. */
enum { ADDITIONS = 30, ADDEND = 3, WORD = 1, WORDS = 3 };

static const uint64_t beginning = UINT64_MAX - 40, swapped = 0x0123456789abcdef;

/* What an atomic operation returns was put in the slot. */
static uint64_t *slot_word(struct end *end, int slot) { return (uint64_t *)(end->sent + slot * SLOT); }

static void add(struct end *end, int slot, uint64_t addend)
{
	struct ibv_send_wr request = {
		.wr_id = slot,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = {.remote_addr = end->there.writable + WORD * sizeof(uint64_t),
				   .rkey = end->there.rkey, .compare_add = addend},
	};

	post(end, &request, slot, sizeof(uint64_t));
}

static uint64_t compare_and_swap(struct end *end, uint64_t compare, uint64_t swap)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = {.remote_addr = end->there.writable + WORD * sizeof(uint64_t),
				   .rkey = end->there.rkey, .compare_add = compare, .swap = swap},
	};

	post(end, &request, 0, sizeof(uint64_t));
	CHECK_EQUAL(success(end).opcode, IBV_WC_COMP_SWAP);
	return *slot_word(end, 0);
}

/* More additions at once than may be in progress, then swaps that succeed and fail. */
static void operate(struct end *end)
{
	const uint64_t sum = beginning + ADDITIONS * ADDEND;

	for (int i = 0; i < ADDITIONS; i++)
		add(end, i, ADDEND);
	for (int i = 0; i < ADDITIONS; i++) {
		struct ibv_wc wc = success(end);

		CHECK_EQUAL(wc.wr_id, i);
		CHECK_EQUAL(wc.opcode, IBV_WC_FETCH_ADD);
		CHECK_EQUAL(*slot_word(end, i), beginning + i * ADDEND);
	}
	CHECK_EQUAL(compare_and_swap(end, sum + 1, 0), sum);
	CHECK_EQUAL(compare_and_swap(end, sum, swapped), sum);
	CHECK_EQUAL(compare_and_swap(end, sum, 0), swapped);
	add(end, 0, 0);
	success(end);
	CHECK_EQUAL(*slot_word(end, 0), swapped);
}

static void atomics(struct end *end)
{
	uint64_t *words = (uint64_t *)end->writable;

	for (int i = 0; i < WORDS; i++)
		words[i] = beginning;
	meet(end);
	for (int turn = 0; turn < 2; turn++) {
		if (end->first == !turn)
			operate(end);
		meet(end);
	}
	for (int i = 0; i < WORDS; i++)
		CHECK_EQUAL(words[i], i == WORD ? swapped : beginning);
}

/* The end that begins has one request refused; of the other's memory nothing changes. rxe does not even post what is
 * invalid. */
static void expect(struct end *end, struct ibv_send_wr *request, enum ibv_wc_status status)
{
	if (end->first) {
		int posted;

		fill(end->sent, sizeof(uint64_t), 0, true);
		posted = try_post(end, request, 0, sizeof(uint64_t));
		if (posted)
			CHECK(posted == EINVAL && status == IBV_WC_REM_INV_REQ_ERR);
		else
			CHECK_EQUAL(completion(end).status, status);
	}
	meet(end);
	for (int i = 0; i < SLOT; i++)
		CHECK_EQUAL(end->writable[i], 0);
}

static void unaligned_atomic(struct end *end)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = {.remote_addr = end->there.writable + 4, .rkey = end->there.rkey, .compare_add = 1},
	};

	expect(end, &request, IBV_WC_REM_INV_REQ_ERR);
}

static void forbidden_atomic(struct end *end)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = {.remote_addr = end->there.writable, .rkey = end->there.rkey, .swap = 1},
	};

	expect(end, &request, IBV_WC_REM_ACCESS_ERR);
}

static void forbidden_read(struct end *end)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {.remote_addr = end->there.writable, .rkey = end->there.rkey},
	};

	expect(end, &request, IBV_WC_REM_ACCESS_ERR);
}

/* The last byte is behind the memory. */
static void write_too_far(struct end *end)
{
	struct ibv_send_wr request = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.wr.rdma = {.remote_addr = end->there.writable + SLOTS * SLOT - sizeof(uint64_t) + 1,
				 .rkey = end->there.rkey},
	};

	post_receives(end, 1, SLOT);
	meet(end);
	expect(end, &request, IBV_WC_REM_ACCESS_ERR);
}

const struct test connected_cases[] = {
	{"immediate data over RC", IBV_QPT_RC, IBV_ACCESS_REMOTE_WRITE, immediates},
	{"immediate data over UC", IBV_QPT_UC, IBV_ACCESS_REMOTE_WRITE, immediates},
	{"atomic operations", IBV_QPT_RC, IBV_ACCESS_REMOTE_ATOMIC, atomics},
	{"an atomic operation on an unaligned address", IBV_QPT_RC, IBV_ACCESS_REMOTE_ATOMIC, unaligned_atomic},
	{"an atomic operation on memory that allows none", IBV_QPT_RC, IBV_ACCESS_REMOTE_WRITE, forbidden_atomic},
	{"a READ of memory that allows none", IBV_QPT_RC, IBV_ACCESS_REMOTE_WRITE, forbidden_read},
	{"a WRITE past the end of memory", IBV_QPT_RC, IBV_ACCESS_REMOTE_WRITE, write_too_far},
	{.name = NULL},
};
