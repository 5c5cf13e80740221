/* A guest without an operating system, loaded by the Multiboot Specification. It fills memory again and again, each
 * time after it has found there what it filled it with before. For each round it sends the next letter to port 0xe9,
 * and "!" instead, for ever, if it finds anything else.
 */
#define HEADER 0x1badb002
#define FIRST ((volatile unsigned *)(16 << 20))
#define WORDS ((8 << 20) / sizeof(unsigned))

__attribute__((section(".text.header"), used)) static const unsigned multiboot[] = { HEADER, 0, -HEADER };

static char stack[4096] __attribute__((aligned(16), used));

__asm__(".globl _start\n_start: movl $stack+4096, %esp\n call fill");

static void send(char letter)
{
	__asm__ volatile("outb %0, $0xe9" : : "a"(letter));
}

__attribute__((used, noreturn)) void fill(void)
{
	for (unsigned round = 0;; round++) {
		for (unsigned i = 0; i < WORDS; i++) {
			while (round && FIRST[i] != (round - 1) * 0x9e3779b1 + i)
				send('!');
			FIRST[i] = round * 0x9e3779b1 + i;
		}
		send('a' + round % 26);
	}
}
