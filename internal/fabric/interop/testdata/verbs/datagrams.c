/* Cases of UD: address handles, the GRH before each message, and Q_Keys. */
#include <arpa/inet.h>
#include <netinet/ip.h>

#include "verbs.h"

/* Of messages, up to the largest. */
static const uint32_t lengths[] = {0, 1, 8, 1023, MTU};

enum {
	MESSAGES = sizeof(lengths) / sizeof(*lengths),
	GRH = 40,             /* bytes */
	HOPS = 64,            /* which Linux takes from its routes, whatever an address handle says */
	WRONG = QKEY ^ 1,
	REPLY = MESSAGES,     /* the number of the message that answers the others */
	IP_UDP = 17,
};

/* Every other message has immediate data. */
static bool has_immediate(int message) { return message % 2; }

static uint32_t immediate(int message) { return 0xdecade00 + message; }

static void send_message(struct end *end, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, int message, uint32_t length)
{
	struct ibv_send_wr request = {
		.wr_id = message,
		.opcode = has_immediate(message) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.imm_data = htonl(immediate(message)),
		.wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey},
	};
	struct ibv_wc wc;

	fill(end->sent, length, message, end->first);
	post(end, &request, 0, length);
	wc = success(end);
	CHECK_EQUAL(wc.wr_id, message);
	CHECK_EQUAL(wc.opcode, IBV_WC_SEND);
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

/* The headers of a message behind UDP's: BTH, DETH and what immediate data there is; then its padding and the ICRC. */
static uint32_t datagram_length(const struct ibv_wc *wc)
{
	uint32_t payload = wc->byte_len - GRH, udp = 8, bth = 12, deth = 8, icrc = 4;

	return udp + bth + deth + (wc->wc_flags & IBV_WC_WITH_IMM ? 4 : 0) + (payload + 3) / 4 * 4 + icrc;
}

/* The header of IPv4 is in the last 20 bytes of the GRH; that of IPv6 fills it (IBTA annex A17.4.5.2). */
static void check_grh(struct end *end, const uint8_t *grh, const struct ibv_wc *wc)
{
	const struct address *from = &end->there, *to = &end->here;

	if (is_ipv4(&to->gid)) {
		struct iphdr ip;

		memcpy(&ip, grh + GRH - sizeof(ip), sizeof(ip));
		CHECK_EQUAL(ip.version, 4);
		CHECK_EQUAL(ip.ihl, 5);
		CHECK_EQUAL(ip.tos, 0);
		CHECK_EQUAL(ntohs(ip.tot_len), sizeof(ip) + datagram_length(wc));
		CHECK_EQUAL(ip.ttl, HOPS);
		CHECK_EQUAL(ip.protocol, IP_UDP);
		CHECK(!memcmp(&ip.saddr, from->gid.raw + 12, 4));
		CHECK(!memcmp(&ip.daddr, to->gid.raw + 12, 4));
	} else {
		struct ibv_grh ip;

		memcpy(&ip, grh, sizeof(ip));
		CHECK_EQUAL(ntohl(ip.version_tclass_flow) >> 20, 6 << 8); /* and the traffic class */
		CHECK_EQUAL(ntohs(ip.paylen), datagram_length(wc));
		CHECK_EQUAL(ip.hop_limit, HOPS);
		CHECK_EQUAL(ip.next_hdr, IP_UDP);
		CHECK(!memcmp(&ip.sgid, &from->gid, sizeof(ip.sgid)));
		CHECK(!memcmp(&ip.dgid, &to->gid, sizeof(ip.dgid)));
	}
}

static struct ibv_wc receive_message(struct end *end, int slot, int message, uint32_t length)
{
	const uint8_t *data = end->received + slot * SLOT;
	struct ibv_wc wc = success(end);

	CHECK_EQUAL(wc.opcode, IBV_WC_RECV);
	CHECK_EQUAL(wc.wr_id, slot);
	CHECK_EQUAL(wc.src_qp, end->there.qpn);
	CHECK(wc.wc_flags & IBV_WC_GRH);
	CHECK_EQUAL(!!(wc.wc_flags & IBV_WC_WITH_IMM), has_immediate(message));
	if (has_immediate(message))
		CHECK_EQUAL(ntohl(wc.imm_data), immediate(message));
	CHECK_EQUAL(wc.byte_len, GRH + length);
	check(data + GRH, length, message, !end->first);
	CHECK_EQUAL(data[wc.byte_len], 0); /* the first byte behind */
	return wc;
}

/* Before each message goes one with a wrong Q_Key, which the peer must not receive. */
static void speak(struct end *end)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = PORT,
		.grh = {.dgid = end->there.gid, .sgid_index = end->gid_index, .hop_limit = HOPS},
	};
	struct ibv_ah *ah = ibv_create_ah(end->pd, &attr);

	CHECK(ah);
	for (int i = 0; i < MESSAGES; i++) {
		send_message(end, ah, end->there.qpn, WRONG, REPLY + 1, lengths[i]);
		send_message(end, ah, end->there.qpn, QKEY, i, lengths[i]);
	}
	receive_message(end, 0, REPLY, MTU);
	CHECK(!ibv_destroy_ah(ah));
}

/* The reply goes to where the last message is from, by its GRH. */
static void listen_and_reply(struct end *end)
{
	struct ibv_wc last;
	struct ibv_ah *ah;

	for (int i = 0; i < MESSAGES; i++) {
		last = receive_message(end, i, i, lengths[i]);
		check_grh(end, end->received + i * SLOT, &last);
	}
	ah = ibv_create_ah_from_wc(end->pd, &last, (struct ibv_grh *)(end->received + (MESSAGES - 1) * SLOT), PORT);
	CHECK(ah);
	send_message(end, ah, last.src_qp, QKEY, REPLY, MTU);
	CHECK(!ibv_destroy_ah(ah));
}

static void datagrams(struct end *end)
{
	for (int turn = 0; turn < 2; turn++) {
		bool speaks = end->first == !turn;

		memset(end->received, 0, SLOTS * SLOT);
		post_receives(end, speaks ? 1 : MESSAGES, SLOT);
		meet(end);
		if (speaks)
			speak(end);
		else
			listen_and_reply(end);
		meet(end);
	}
}

const struct test datagram_cases[] = {
	{"datagrams", IBV_QPT_UD, 0, datagrams},
	{.name = NULL},
};
