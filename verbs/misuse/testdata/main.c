/* Runs the case that the argument names, or lists all. */
#include "misuse.h"

static const struct group *const all[] = { posting_cases, memory_cases, order_cases, fork_cases,
					   signal_cases,  thread_cases, limit_cases, end_cases,
					   region_cases,  event_cases, apart_cases };

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		for (const struct group *c = all[i]; c->name; c++) {
			if (argc < 2) {
				puts(c->name);
			} else if (!strcmp(argv[1], c->name)) {
				c->run();
				return 0;
			}
		}
	}
	return argc < 2 ? 0 : 2;
}
