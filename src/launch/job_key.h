/* The secret that keeps strangers out of a job whose ranks meet over a network: the file that --token-file
 * names, LOCKSTEP_TOKEN, or else the user's own key file. The latter is made at its first use, so that jobs
 * of one user on hosts that share homes need no setting. */
#ifndef LKI_LAUNCH_JOB_KEY_H
#define LKI_LAUNCH_JOB_KEY_H

#include <lockstep/status.h>

#include <stddef.h>

/* Adds a digest of the secret to a role's token. */
lk_status lki_job_key_add(char *token, size_t capacity, const char *token_file);

/* A token for processes that this one forks: nobody else can know it. */
lk_status lki_job_key_random(char *token, size_t capacity);

#endif
