/* Runs the case that is named. */
#include "common.h"

static const struct {
	const char *name;
	void (*run)(void);
} CASES[] = {
	{ "device", device_case },	 { "objects", objects_case },   { "regions", regions_case },
	{ "states", states_case },	 { "mappings", mappings_case }, { "many", many_case },
	{ "send", send_case },		 { "wrap", wrap_case },		{ "reset", reset_case },
	{ "read", read_case },		 { "ud", ud_case },
	{ "write", write_case },		 { "sgid", sgid_case },		{ "statuses", statuses_case },
	{ "unmapped", unmapped_case },	 { "events", events_case },	{ "wakeups", wakeups_case },
	{ "signals", signals_case },	 { "drained", drained_case },	 { "unread", unread_case },	{ "fork", fork_case },
	{ "busy", busy_case },		 { "vfork", vfork_case },
	{ "abandon", abandon_case },	 { "latency", latency_case },
	{ "scatter", scatter_case },	 { "wide", wide_case },		{ "ids", ids_case },
	{ "malformed", malformed_case }, { "mismatch", mismatch_case }, { "external", external_case },
	{ "address", address_case },	 { "dmabuf", dmabuf_case },	{ "newer", newer_case },
	{ "limits", limits_case },	 { "shared", shared_case },	{ "counters", counters_case },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(CASES) / sizeof(*CASES); i++)
		if (!strcmp(CASES[i].name, argv[1])) {
			alarm(60);
			CASES[i].run();
			printf("done: %s\n", argv[1]);
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
