/* The answers to the page's questions, each in JSON if nothing else is said. A run that is not there gets
 * 404.
 */
#ifndef LKI_BOARD_ANSWERS_H
#define LKI_BOARD_ANSWERS_H

#include "board/board.h"
#include "board/http.h"
#include "board/text_out.h"

/* ?have=VERSION: the runs that have changed since, and the ids of all. Looks for news first. */
void lki_board_answer_runs(lki_board *board, const lki_http_request *request, lki_http_answer *answer);

/* ?axis=epoch&loader=train&metric=loss&runs=1,2&x=step|relative|time&from=&to=&smooth=0.6&buckets=500: a
 * curve per run that has the metric. */
void lki_board_answer_curves(lki_board *board, const lki_http_request *request, lki_http_answer *answer);

/* ?run=1: config.yml, flat. */
void lki_board_answer_config(lki_board *board, const lki_http_request *request, lki_http_answer *answer);
/* ?run=1: the end of log.txt, as text; nothing if there is none. */
void lki_board_answer_log(lki_board *board, const lki_http_request *request, lki_http_answer *answer);
/* ?run=1: its histograms. */
void lki_board_answer_histograms(lki_board *board, const lki_http_request *request, lki_http_answer *answer);
/* ?run=1: model.json; null if there is none, or it is no JSON object. */
void lki_board_answer_model(lki_board *board, const lki_http_request *request, lki_http_answer *answer);
/* ?run=1: its PNG files and confusion matrices. */
void lki_board_answer_files(lki_board *board, const lki_http_request *request, lki_http_answer *answer);
/* ?run=1&path=confusion_matrix/valid_0001.png: the picture. */
void lki_board_answer_picture(lki_board *board, const lki_http_request *request, lki_http_answer *answer);
/* ?run=1&path=confusion_matrix/valid_0001.csv: the file, as text. */
void lki_board_answer_table(lki_board *board, const lki_http_request *request, lki_http_answer *answer);

/* The run that the query names; NULL, and the answer is 404, if there is none. */
const lki_board_run *lki_board_queried_run(const lki_board *board, const lki_http_request *request,
                                           lki_http_answer *answer);
/* Makes the text the answer, and owns it. */
void lki_board_send_text(lki_http_answer *answer, lki_text_out *out, const char *type);
#define LKI_BOARD_JSON "application/json; charset=utf-8"

#endif
