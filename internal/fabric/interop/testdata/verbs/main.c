/* One end of all cases:
 *
 *	verbs LOCAL PORT [PEER]
 *
 * The end without PEER waits at PORT, by TCP, for the other one, which begins every case. LOCAL and PEER are addresses
 * of IPv4 or IPv6; LOCAL is one of a GID, too.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs.h"

enum { PATIENCE = 240 }; /* seconds for everything; an emulated machine is slow */

static union ibv_gid parse_gid(const char *text)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	CHECK(inet_pton(AF_INET, text, gid.raw + 12) == 1 || inet_pton(AF_INET6, text, gid.raw) == 1);
	return gid;
}

/* A TCP connection to the other end. */
static int reach(const char *local, const char *port, const char *peer)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *at;
	int s, on = 1, connection;

	CHECK(!getaddrinfo(peer ? peer : local, port, &hints, &at));
	s = socket(at->ai_family, SOCK_STREAM, 0);
	CHECK(s >= 0);
	if (peer) {
		CHECK(!connect(s, at->ai_addr, at->ai_addrlen));
		connection = s;
	} else {
		CHECK(!setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
		CHECK(!bind(s, at->ai_addr, at->ai_addrlen) && !listen(s, 1));
		connection = accept(s, NULL, NULL);
		CHECK(connection >= 0);
		close(s);
	}
	freeaddrinfo(at);
	return connection;
}

static void run_cases(const struct test *test, int peer, bool first, const union ibv_gid *gid)
{
	for (; test->name; test++) {
		struct end end = {.peer = peer, .first = first};

		printf("%s\n", test->name);
		open_end(&end, test, gid);
		CHECK(write(peer, &end.here, sizeof(end.here)) == sizeof(end.here));
		CHECK(recv(peer, &end.there, sizeof(end.there), MSG_WAITALL) == sizeof(end.there));
		connect_end(&end);
		meet(&end);
		test->run(&end);
		meet(&end);
		close_end(&end);
	}
}

int main(int argc, char **argv)
{
	union ibv_gid gid;
	int peer;

	CHECK(argc == 3 || argc == 4);
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(PATIENCE);
	gid = parse_gid(argv[1]);
	peer = reach(argv[1], argv[2], argc == 4 ? argv[3] : NULL);
	run_cases(connected_cases, peer, argc == 4, &gid);
	run_cases(datagram_cases, peer, argc == 4, &gid);
	printf("all cases pass\n");
	return 0;
}
