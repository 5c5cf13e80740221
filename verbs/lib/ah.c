/* Address handles, and addresses out of received datagrams. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib.h"
#include "public.h"

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	int status = check_context(pd->context);
	struct ah *ah = status ? NULL : calloc(1, sizeof(*ah));

	if (ah)
		status = CALL(pd->context, create_ah, to_pd(pd)->handle, attr, &ah->handle);
	else if (!status)
		status = ENOMEM;
	if (status) {
		free(ah);
		errno = status;
		return NULL;
	}
	hold_pd(pd);
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	ah->ah.handle = ah->handle;
	return &ah->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	int status = check_context(ah->context);

	if (!status)
		status = CALL(ah->context, destroy_ah, to_ah(ah)->handle);
	if (status)
		return status;
	release_pd(ah->pd);
	free(to_ah(ah));
	return 0;
}

/* The header of IPv4 without options, as far as addresses need it (RFC 791). */
struct ipv4 {
	uint8_t version_length;
	uint8_t tos;
	uint16_t words[5];
	uint8_t source[4];
	uint8_t destination[4];
};

/* Whether the checksum is right (RFC 1071): random bytes in front of an IPv6 header's end seldom are. */
static bool is_ipv4(const struct ipv4 *header)
{
	const uint8_t *bytes = (const uint8_t *)header;
	uint32_t sum = 0;

	if (header->version_length != 0x45)
		return false;
	for (size_t i = 0; i < sizeof(*header); i += 2)
		sum += bytes[i] << 8 | bytes[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

static union ibv_gid map_ipv4(const uint8_t address[4])
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	memcpy(gid.raw + 12, address, 4);
	return gid;
}

static int find_gid(struct ibv_context *context, const union ibv_gid *gid, uint8_t *index)
{
	struct ibv_gid_entry entries[MAX_GIDS];
	ssize_t n = _ibv_query_gid_table(context, entries, MAX_GIDS, 0, sizeof(entries[0]));

	if (n < 0)
		return -n;
	for (ssize_t i = 0; i < n; i++) {
		if (!memcmp(entries[i].gid.raw, gid->raw, sizeof(gid->raw))) {
			*index = i;
			return 0;
		}
	}
	return ENOENT;
}

/* The 40 bytes in front of a datagram end with the header of IPv4 (RoCEv2, IBTA Vol. 1, A17.4.5.2), or are
 * that of IPv6, of which a GRH has the form. */
static int describe_sender(struct ibv_context *context, const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct ipv4 header;
	union ibv_gid own;
	uint32_t flow = ntohl(grh->version_tclass_flow);

	memcpy(&header, (const char *)grh + sizeof(*grh) - sizeof(header), sizeof(header));
	attr->is_global = 1;
	attr->grh.hop_limit = 0xff;
	if (is_ipv4(&header)) {
		own = map_ipv4(header.destination);
		attr->grh.dgid = map_ipv4(header.source);
		attr->grh.traffic_class = header.tos;
	} else {
		own = grh->dgid;
		attr->grh.dgid = grh->sgid;
		attr->grh.flow_label = flow & 0xfffff;
		attr->grh.traffic_class = flow >> 20;
	}
	return find_gid(context, &own, &attr->grh.sgid_index);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *attr)
{
	int status = 0;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (wc->wc_flags & IBV_WC_GRH)
		status = describe_sender(context, grh, attr);
	if (!status)
		return 0;
	errno = status;
	return -1;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}
