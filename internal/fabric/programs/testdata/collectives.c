/* A ring, all-reduces and all-to-alls of growing lengths. Each result is compared, and rank 0 prints how many elements
 * of all ranks were wrong. The argument is the greatest length, in elements.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

/* What every rank has passed once around is its own again after as many steps as there are ranks. */
static int ring(int n)
{
	int *mine = malloc(n * sizeof(*mine)), *theirs = malloc(n * sizeof(*theirs)), *other, wrong = 0;
	int next = (rank + 1) % size, before = (rank + size - 1) % size;

	for (int i = 0; i < n; i++)
		mine[i] = rank * 1000003 + i;
	for (int step = 1; step <= size; step++) {
		MPI_Sendrecv(mine, n, MPI_INT, next, step, theirs, n, MPI_INT, before, step, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		for (int i = 0; i < n; i++)
			wrong += theirs[i] != (rank + size - step) % size * 1000003 + i;
		other = mine;
		mine = theirs;
		theirs = other;
	}
	free(mine);
	free(theirs);
	return wrong;
}

static int all_reduce(int n)
{
	long *mine = malloc(n * sizeof(*mine)), *sum = malloc(n * sizeof(*sum));
	int wrong = 0;

	for (int i = 0; i < n; i++)
		mine[i] = (long)rank * i + 1;
	MPI_Allreduce(mine, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		wrong += sum[i] != (long)size * (size - 1) / 2 * i + size;
	free(mine);
	free(sum);
	return wrong;
}

static int all_to_all(int n)
{
	int *out = malloc(n * size * sizeof(*out)), *in = malloc(n * size * sizeof(*in)), wrong = 0;

	for (int to = 0; to < size; to++)
		for (int i = 0; i < n; i++)
			out[to * n + i] = rank * 10007 + to * 101 + i;
	MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD);
	for (int from = 0; from < size; from++)
		for (int i = 0; i < n; i++)
			wrong += in[from * n + i] != from * 10007 + rank * 101 + i;
	free(out);
	free(in);
	return wrong;
}

int main(int argc, char **argv)
{
	int wrong = 0, all = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int n = 1; n <= (argc > 1 ? atoi(argv[1]) : 1000); n *= 10)
		wrong += ring(n) + all_reduce(n) + all_to_all(n);
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, %d wrong\n", size, all);
	MPI_Finalize();
	return 0;
}
