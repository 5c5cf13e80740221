/* An engine in a process of its own, which may end before the program or after it, and goes on while the program does not.
 * Where the engine is in the program's process there is nothing of that. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "misuse.h"

#define MEMORY "/memfd:ndklab-rnic"

/* The inode of the first memory that a process shares with its engine, as text; "" where there is none. */
static void find_memory(const char *pid, char inode[64])
{
	char path[64], line[512];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%.32s/maps", pid);
	maps = fopen(path, "r");
	inode[0] = 0;
	while (maps && !inode[0] && fgets(line, sizeof(line), maps))
		if (strstr(line, MEMORY) && sscanf(line, "%*s %*s %*s %*s %63s", inode) != 1)
			inode[0] = 0;
	if (maps)
		fclose(maps);
}

/* Whether a process has the memory mapped. */
static bool shares(const char *pid, const char *inode)
{
	char path[64], line[512], other[64];
	bool found = false;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%.32s/maps", pid);
	maps = fopen(path, "r");
	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, MEMORY) && sscanf(line, "%*s %*s %*s %*s %63s", other) == 1 && !strcmp(other, inode);
	if (maps)
		fclose(maps);
	return found;
}

/* The engine's process of this one. */
static pid_t find_engine(void)
{
	char inode[64], path[64], program[256];
	DIR *all = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	find_memory("self", inode);
	CHECK(all && inode[0]);
	while (!found && (entry = readdir(all))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%.32s/exe", entry->d_name);
		n = readlink(path, program, sizeof(program) - 1);
		if (n <= 0)
			continue;
		program[n] = 0;
		if (strstr(program, "ndklab-rnic") && shares(entry->d_name, inode))
			found = atoi(entry->d_name);
	}
	closedir(all);
	CHECK(found > 1);
	return found;
}

/* Says what each thread of a process does that should have ended. */
static void describe(pid_t pid)
{
	char path[64], text[256];
	struct dirent *entry;
	DIR *all;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	all = opendir(path);
	while (all && (entry = readdir(all))) {
		static const char *const files[] = { "stat", "wchan", "syscall" };

		if (entry->d_name[0] == '.')
			continue;
		for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++) {
			ssize_t n = -1;
			int file;

			snprintf(path, sizeof(path), "/proc/%d/task/%.20s/%s", (int)pid, entry->d_name, files[i]);
			file = open(path, O_RDONLY);
			if (file >= 0)
				n = read(file, text, sizeof(text) - 1);
			text[n < 0 ? 0 : n] = 0;
			fprintf(stderr, "%s: %s\n", path, text);
			if (file >= 0)
				close(file);
		}
	}
	if (all)
		closedir(all);
}

static void await_end(pid_t pid, double seconds)
{
	while (!kill(pid, 0)) {
		if (seconds <= 0)
			describe(pid);
		CHECK(seconds > 0);
		usleep(10000);
		seconds -= 0.01;
	}
	CHECK(errno == ESRCH);
}

static void *wait_for_failure(void *context)
{
	struct ibv_async_event event;

	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	return NULL;
}

/* All that there is can be closed, though nothing works. */
static void close_failed(struct end pair[2])
{
	struct ibv_port_attr port;
	struct ibv_wc wc;
	time_t late = time(NULL) + 10;
	int n;

	CHECK(ibv_query_port(pair->context, 1, &port) == EIO);
	CHECK(!ibv_alloc_pd(pair->context) && errno == EIO);
	while ((n = ibv_poll_cq(pair->cq, 1, &wc)) >= 0) /* what was complete before */
		CHECK(time(NULL) < late);
	CHECK(post(pair, (struct address){ 0 }, IBV_WR_SEND, 8) == EIO && post_receive(pair, 8) == EIO);
	close_end(&pair[0]);
	close_end(&pair[1]);
	CHECK(!ibv_close_device(pair->context));
}

/* The engine's process is killed while the program works, waits for an event, or sleeps. */
static void engine_dies(void)
{
	struct ibv_comp_channel *channel;
	struct pollfd fatal = { .events = POLLIN };
	struct ibv_cq *cq, *got;
	struct end pair[2];
	pthread_t thread;
	void *argument;
	pid_t engine;

	if (!engine_is_apart())
		return;
	signal(SIGPIPE, SIG_DFL);
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child) {
			int status;

			CHECK(waitpid(child, &status, 0) == child && !status);
			continue;
		}
		make_pair(pair);
		exchange(pair);
		engine = find_engine();
		CHECK(channel = ibv_create_comp_channel(pair->context));
		CHECK(cq = ibv_create_cq(pair->context, 4, &fatal, channel, 0));
		CHECK(!ibv_req_notify_cq(cq, i & 1));
		if (i & 2)
			CHECK(!pthread_create(&thread, NULL, wait_for_failure, pair->context));
		for (int j = 0; j < DEPTH; j++)
			CHECK(!post(pair, address_of(&pair[1]), IBV_WR_RDMA_WRITE, SIZE));
		CHECK(!kill(engine, SIGKILL));
		await_end(engine, 30);
		CHECK(!ibv_get_cq_event(channel, &got, &argument) && got == cq && argument == &fatal);
		ibv_ack_cq_events(cq, 1);
		if (i & 2) {
			pthread_join(thread, NULL);
		} else {
			fatal.fd = pair->context->async_fd;
			CHECK(poll(&fatal, 1, 5000) == 1);
			wait_for_failure(pair->context);
		}
		CHECK(ibv_req_notify_cq(cq, 0) == EIO);
		CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
		if (i & 1)
			close_failed(pair);
		exit(0);
	}
}

/* As many posts as there is room for, and more, while nobody takes them. */
static void engine_dies_in_posts(void)
{
	struct address to;
	struct end pair[2];
	struct ibv_wc wc;
	time_t late;
	pid_t engine;

	if (!engine_is_apart())
		return;
	make_pair(pair);
	to = address_of(&pair[1]);
	engine = find_engine();
	late = time(NULL) + 10;
	if (!fork()) {
		usleep(200000);
		kill(engine, SIGKILL);
		_exit(0);
	}
	for (;;) {
		int status = post(pair, to, IBV_WR_RDMA_WRITE, 8), n;

		CHECK(time(NULL) < late && (!status || status == ENOMEM || status == EIO));
		n = ibv_poll_cq(pair->cq, 1, &wc);
		CHECK(n < 0 || n == 0 || wc.status == IBV_WC_SUCCESS);
		if (status == EIO && n < 0)
			break;
	}
	close_failed(pair);
	CHECK(wait(NULL) > 0);
}

/* Whether the main thread of a process is stopped. */
static bool is_stopped(pid_t pid)
{
	char path[64], state = 0;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	CHECK((stat = fopen(path, "r")) && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
	fclose(stat);
	return state == 'T';
}

/* What a program does that is killed. */
enum doing { IDLE, BUSY, HAS_POSTED };

/* A program that is killed leaves no process of ours, also where the engine has yet to take what was posted. */
static void program_dies(void)
{
	int told[2];
	pid_t engine, program;

	if (!engine_is_apart())
		return;
	CHECK(!pipe(told));
	for (enum doing doing = IDLE; doing <= HAS_POSTED; doing++) {
		program = fork();
		CHECK(program >= 0);
		if (!program) {
			struct address to;
			struct end pair[2];

			make_pair(pair);
			exchange(pair);
			to = address_of(&pair[1]);
			engine = find_engine();
			if (doing == HAS_POSTED) {
				CHECK(!kill(engine, SIGSTOP));
				while (!is_stopped(engine))
					usleep(1000);
				for (int i = 0; i < DEPTH; i++)
					CHECK(!post(pair, to, IBV_WR_RDMA_WRITE, SIZE));
			}
			CHECK(write(told[1], &engine, sizeof(engine)) == sizeof(engine));
			for (;;) {
				if (doing == BUSY)
					exchange(pair);
				else
					pause();
			}
		}
		CHECK(read(told[0], &engine, sizeof(engine)) == sizeof(engine));
		usleep(50000);
		CHECK(!kill(program, SIGKILL) && waitpid(program, NULL, 0) == program);
		CHECK(doing != HAS_POSTED || !kill(engine, SIGCONT));
		await_end(engine, 30);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void stop(pid_t child)
{
	int status;

	CHECK(!kill(child, SIGSTOP) && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
}

static void go_on(pid_t child)
{
	CHECK(!kill(child, SIGCONT));
}

static void trace(pid_t child)
{
	int status;

	CHECK(!ptrace(PTRACE_ATTACH, child, NULL, NULL) && waitpid(child, &status, __WALL) == child && WIFSTOPPED(status));
}

static void let_go(pid_t child)
{
	CHECK(!ptrace(PTRACE_DETACH, child, NULL, NULL));
}

/* A program that is stopped, for longer than its peers have patience: its adapter goes on, as any that is not part of it. */
static void stopped(void)
{
	static void (*const holds[])(pid_t) = { stop, trace }, (*const releases[])(pid_t) = { go_on, let_go };

	if (!engine_is_apart())
		return;
	for (int i = 0; i < 2; i++) {
		int to_child[2], to_parent[2], status;
		struct address theirs, ours;
		struct end end;
		pid_t child;
		double until;

		CHECK(!pipe(to_child) && !pipe(to_parent));
		child = fork();
		CHECK(child >= 0);
		make_end(&end, open_device());
		if (!child)
			CHECK(!post_receive(&end, SIZE));
		ours = address_of(&end);
		CHECK(write(child ? to_child[1] : to_parent[1], &ours, sizeof(ours)) == sizeof(ours));
		CHECK(read(child ? to_parent[0] : to_child[0], &theirs, sizeof(theirs)) == sizeof(theirs));
		connect_end(&end, theirs);
		if (!child) {
			CHECK(write(to_parent[1], "", 1) == 1);
			CHECK_STATUS(await_completion(end.cq), IBV_WC_SUCCESS);
			CHECK(end.memory[0] == 's');
			CHECK(!post(&end, theirs, IBV_WR_RDMA_WRITE, 8));
			CHECK_STATUS(await_completion(end.cq), IBV_WC_SUCCESS);
			exit(0);
		}
		CHECK(read(to_parent[0], &status, 1) == 1);
		holds[i](child);
		memset(end.memory, 's', SIZE);
		CHECK(!post(&end, theirs, IBV_WR_SEND, SIZE));
		CHECK_STATUS(await_completion(end.cq), IBV_WC_SUCCESS);
		for (until = now() + 2; now() < until; usleep(1000)) {
			CHECK(!post(&end, theirs, IBV_WR_RDMA_READ, SIZE));
			CHECK_STATUS(await_completion(end.cq), IBV_WC_SUCCESS);
			CHECK(end.memory[SIZE - 1] == 's');
		}
		releases[i](child);
		CHECK(waitpid(child, &status, 0) == child && !status);
		close_end(&end);
	}
}

/* A program that polls in vain leaves the processor to its engine now and then. */
static void polls_in_vain(void)
{
	struct rusage before, after;
	struct ibv_wc wc;
	struct end end;

	if (!engine_is_apart())
		return;
	make_end(&end, open_device());
	CHECK(!getrusage(RUSAGE_THREAD, &before));
	for (int i = 0; i < 16000; i++)
		CHECK(!ibv_poll_cq(end.cq, 1, &wc));
	CHECK(!getrusage(RUSAGE_THREAD, &after));
	CHECK(after.ru_nvcsw - before.ru_nvcsw >= 900); /* one in 16, but for those that were interrupted */
	close_end(&end);
}

const struct group apart_cases[] = {
	{ "engine-dies", engine_dies }, { "engine-dies-in-posts", engine_dies_in_posts }, { "program-dies", program_dies },
	{ "stopped", stopped }, { "polls-in-vain", polls_in_vain }, { 0 },
};
