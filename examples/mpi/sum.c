/* sum: all ranks add up vectors of growing lengths, and check the sums. Rank 0 prints how long the last took, as the
 * programs of ibverbs-utils do.
 *
 *   mpicc.mpich -O2 -o bin/sum examples/mpi/sum.c
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 20
#define LONGEST 65536

int main(int argc, char **argv)
{
	static long mine[LONGEST], sum[LONGEST];
	int rank, size, wrong = 0, all;
	double begin = 0, seconds;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int n = 1; n <= LONGEST; n *= 16) {
		begin = MPI_Wtime();
		for (int round = 0; round < ROUNDS; round++) {
			for (int i = 0; i < n; i++)
				mine[i] = rank + i * round;
			MPI_Allreduce(mine, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
			for (int i = 0; i < n; i++)
				wrong += sum[i] != (long)size * (size - 1) / 2 + (long)size * i * round;
		}
	}
	seconds = MPI_Wtime() - begin;
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank) {
		size_t bytes = sizeof(mine) * ROUNDS;

		printf("%d ranks, %d elements are wrong\n", size, all);
		printf("%zu bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, seconds, bytes * 8 / seconds / 1e6);
		printf("%d iters in %.2f seconds = %.2f usec/iter\n", ROUNDS, seconds, seconds / ROUNDS * 1e6);
	}
	MPI_Finalize();
	return wrong != 0;
}
