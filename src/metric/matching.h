/* The metric of lk_cmc_score_callback: it takes more tensors of a batch than outputs and targets. */
#ifndef LKI_METRIC_MATCHING_H
#define LKI_METRIC_MATCHING_H

#include "metric/metric.h"

/* The samples of a batch that count. */
typedef struct lki_matching_batch {
    const lk_tensor *embeddings; /* (samples, width) */
    const lk_tensor *labels;     /* (samples) */
    const lk_tensor *cameras;    /* (samples), or NULL */
    const lk_tensor *is_query;   /* (samples): not 0 for a query, 0 for one of the gallery */
} lki_matching_batch;

/* cmc01, ... as topk says. With cameras, samples of the gallery that share class and camera with a query are
 * the farthest for that query. */
lk_metric *lki_matching_metric(bool has_cameras, const lk_metric_options *options);
lk_status lki_matching_update(lk_metric *metric, const lki_matching_batch *batch);

#endif
