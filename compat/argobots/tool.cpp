#include "tool.hpp"

#include <mutex>

#include "callback.hpp"
#include "runtime.hpp"

using namespace amalgam::argobots;

/// What a callback may ask about its event, while it runs.
struct ABT_tool_context_opaque {
    ABT_thread_opaque* who;
    ABT_thread_opaque* caller;
    ABT_pool pool;
};

namespace amalgam::argobots {

std::atomic<std::uint64_t> tool_events{0};

namespace {

std::atomic<ABT_tool_thread_callback_fn> tool_callback{nullptr};
std::atomic<void*> tool_arg{nullptr};

}  // namespace

void tell_tool_slowly(ABT_thread_opaque& who, std::uint64_t event) noexcept {
    ABT_tool_thread_callback_fn const told = tool_callback.load(std::memory_order_acquire);
    if (told == nullptr) return;
    ABT_tool_context_opaque context{&who, self(), who.pool.load()};
    ABT_xstream const stream = context.caller == nullptr ? nullptr : context.caller->stream.load();
    called("an exception escaped from a tool's callback",
           [&] { told(&who, stream, event, &context, tool_arg.load(std::memory_order_relaxed)); });
}

}  // namespace amalgam::argobots

int ABT_tool_register_thread_callback(ABT_tool_thread_callback_fn cb_func, uint64_t event_mask,
                                      void* user_arg) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    tool_events = 0;
    tool_arg = user_arg;
    tool_callback = cb_func;
    tool_events = cb_func == nullptr ? 0 : event_mask & ABT_TOOL_EVENT_THREAD_ALL;
    return ABT_SUCCESS;
}

int ABT_tool_query_thread(ABT_tool_context context, uint64_t, ABT_tool_query_kind query_kind,
                          void* val) {
    if (context == nullptr) return ABT_ERR_INV_TOOL_CONTEXT;
    switch (query_kind) {
        case ABT_TOOL_QUERY_KIND_POOL:
            *static_cast<ABT_pool*>(val) = context->pool;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_STACK_DEPTH:
            *static_cast<int*>(val) = 0;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_CALLER_TYPE:
            *static_cast<ABT_exec_entity_type*>(val) =
                context->caller == nullptr ? ABT_EXEC_ENTITY_TYPE_EXT : ABT_EXEC_ENTITY_TYPE_THREAD;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_CALLER_HANDLE:
            *static_cast<ABT_thread*>(val) = context->caller;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_SYNC_OBJECT_TYPE:
            *static_cast<ABT_sync_event_type*>(val) = ABT_SYNC_EVENT_TYPE_UNKNOWN;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_SYNC_OBJECT_HANDLE:
            *static_cast<void**>(val) = nullptr;
            return ABT_SUCCESS;
    }
    return ABT_ERR_INV_QUERY_KIND;
}
