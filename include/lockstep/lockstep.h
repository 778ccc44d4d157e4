/* Lockstep: distributed training of neural networks in C. This header is all of it. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <lockstep/callback.h>
#include <lockstep/checkpoint.h>
#include <lockstep/config.h>
#include <lockstep/contrib.h>
#include <lockstep/data.h>
#include <lockstep/estimator.h>
#include <lockstep/fields.h>
#include <lockstep/graph.h>
#include <lockstep/launch.h>
#include <lockstep/log.h>
#include <lockstep/logger.h>
#include <lockstep/memory.h>
#include <lockstep/metric.h>
#include <lockstep/models.h>
#include <lockstep/nn.h>
#include <lockstep/nodes.h>
#include <lockstep/optim.h>
#include <lockstep/predictor.h>
#include <lockstep/random.h>
#include <lockstep/runner.h>
#include <lockstep/scheduler.h>
#include <lockstep/sized.h>
#include <lockstep/status.h>
#include <lockstep/step.h>
#include <lockstep/sys/metric.h>
#include <lockstep/sys/stream.h>
#include <lockstep/tensor.h>
#include <lockstep/text.h>
#include <lockstep/version.h>
#include <lockstep/vision.h>

#endif
