/* What librdmacm says to /dev/infiniband/rdma_cm. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <rdma/rdma_user_cm.h>
#include "cm.h"
#include "stub.h"

#define DEVICE "/dev/infiniband/rdma_cm"

static int fd;

static void close_meanwhile(void)
{
	CHECK(!cm_close(fd));
}

int main(void)
{
	struct rdma_ucm_cmd_hdr create = { .cmd = RDMA_USER_CM_CMD_CREATE_ID }, event = { .cmd = RDMA_USER_CM_CMD_GET_EVENT };
	struct pollfd readable = { .events = POLLIN };
	struct stub *stub;
	struct stat st;
	int other, ends[2];

	fd = cm_open(DEVICE, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	stub = find_stub();
	CHECK(!cm_fstat(fd, &st) && S_ISCHR(st.st_mode));
	CHECK(!cm_fxstat(1, fd, &st) && S_ISCHR(st.st_mode));
	CHECK(cm_write(fd, &create, sizeof(create)) == sizeof(create) && !memcmp(stub->command, &create, sizeof(create)));
	errno = 0;
	CHECK(cm_write(fd, &create, 3) == -1 && errno == EINVAL);
	fail_next(stub, "command", ENODEV, 1);
	errno = 0;
	CHECK(cm_write(fd, &create, sizeof(create)) == -1 && errno == ENODEV);

	/* GET_EVENT waits for what is announced, and once more where that has gone since. */
	readable.fd = fd;
	CHECK(!poll(&readable, 1, 0));
	CHECK(send(stub->cm_fd, "", 1, 0) == 1 && send(stub->cm_fd, "", 1, 0) == 1);
	CHECK(poll(&readable, 1, 0) == 1);
	fail_next(stub, "command", EAGAIN, 1);
	CHECK(cm_write(fd, &event, sizeof(event)) == sizeof(event));
	CHECK(!poll(&readable, 1, 0));
	CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK));
	errno = 0;
	CHECK(cm_write(fd, &event, sizeof(event)) == -1 && errno == EAGAIN);
	CHECK(!cm_close(fd) && !strcmp(stub->last, "close_channel"));
	errno = 0;
	CHECK(cm_write(fd, &event, sizeof(event)) == -1 && errno == EBADF);
	CHECK(cm_close(fd) == -1);

	/* A thread closes the channel while another one is in a command: the engine knows it no more. */
	fd = cm_open(DEVICE, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	stub->on_command = close_meanwhile;
	fail_next(stub, "command", EINVAL, 1);
	errno = 0;
	CHECK(cm_write(fd, &create, sizeof(create)) == -1 && errno == EBADF);
	stub->on_command = NULL;

	/* Other files are the kernel's. */
	CHECK(!pipe(ends) && cm_write(ends[1], "hello", 5) == 5 && !cm_fstat(ends[0], &st) && S_ISFIFO(st.st_mode));
	CHECK(!cm_close(ends[0]) && !cm_close(ends[1]));
	other = cm_open("/dev/null", O_WRONLY);
	CHECK(other >= 0 && cm_write(other, "hello", 5) == 5 && !cm_close(other));
	errno = 0;
	CHECK(cm_open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT);
	CHECK(cm_nl_connect(NULL, 0) < 0);
	fail_next(stub, "open_channel", EMFILE, 1);
	errno = 0;
	CHECK(cm_open(DEVICE, O_RDWR) == -1 && errno == EMFILE);
	CHECK(!stub->interruptible);
	return 0;
}
