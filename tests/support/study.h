/* A study that only listens, for runs that are to be trials. */
#ifndef LKT_STUDY_H
#define LKT_STUDY_H

/* Forks a process that writes each epoch it hears of to `path`, a line each, and ends a trial after
 * `prune_after` epochs (0: never). Returns the trial's end of the line, for lki_study_join. */
int lkt_study_serve(const char *path, int prune_after);

#endif
