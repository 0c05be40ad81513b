#pragma once

/// Execution streams, pools, ULTs, tasklets, coroutines, and what they wait with. All public
/// headers of the layer, and the alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/tasks/and_gate.hpp>
#include <amalgam/tasks/barrier.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/eventual.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/latch.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/once.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/shared_mutex.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/start_sleep.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>
#include <amalgam/tasks/ult_options.hpp>
#include <amalgam/tasks/ult_ref.hpp>
#include <amalgam/tasks/ult_state.hpp>
#include <amalgam/tasks/watchdog.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>
#include <amalgam/tasks/work_unit.hpp>
