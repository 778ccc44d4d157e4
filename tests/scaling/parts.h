/* The programs that test_slow_scaling becomes in the namespaces it makes. Each returns an exit status. */
#ifndef LKT_SCALING_PARTS_H
#define LKT_SCALING_PARTS_H

/* A switch between network interfaces that hands every frame on DELAY_US after it came, until it is ended:
 * --relay DELAY_US INTERFACE... */
int be_the_relay(int argc, char **argv);

/* Makes an interface do what a wire does: frames are whole, and carry their checksums: --wire INTERFACE */
int be_a_wire(const char *interface);

/* One end of a ping-pong over plain TCP: --pong PORT ends after one peer; --ping HOST PORT prints "LATENCY_S
 * BANDWIDTH". */
int be_pong(int port);
int be_ping(const char *host, int port);

/* A rank that averages buckets: --rank R SIZE HOST PORT BACKEND REPEATS BACKWARD_US NBYTES@READY_US...
 * Rank 0 prints the median of the step's seconds. */
int be_a_rank(int argc, char **argv);

#endif
