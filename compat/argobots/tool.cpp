#include "tool.hpp"

#include <algorithm>
#include <mutex>

#include "callback.hpp"
#include "runtime.hpp"

using namespace amalgam::argobots;

/// What a callback may ask about its event, while it runs.
struct ABT_tool_context_opaque {
    ABT_thread_opaque* caller;
    ABT_pool pool;
    int depth;
    awaited what;
};

namespace amalgam::argobots {

std::atomic<std::uint64_t> tool_events{0};

namespace {

struct tool {
    ABT_tool_thread_callback_fn call;
    void* arg;
    std::uint64_t events;
};

/// Threads: any. Readers take no lock, as they may be in the middle of a switch.
class registered_tool {
public:
    void set(const tool& next) noexcept {
        const std::lock_guard hold(changing_);
        version_.fetch_add(1, std::memory_order_seq_cst);
        call_.store(next.call, std::memory_order_seq_cst);
        arg_.store(next.arg, std::memory_order_seq_cst);
        tool_events.store(next.events, std::memory_order_seq_cst);
        version_.fetch_add(1, std::memory_order_seq_cst);
    }
    /// All three of one and the same set().
    tool get() const noexcept {
        for (;;) {
            const std::uint64_t before = version_.load(std::memory_order_seq_cst);
            const tool seen{call_.load(std::memory_order_seq_cst),
                            arg_.load(std::memory_order_seq_cst),
                            tool_events.load(std::memory_order_seq_cst)};
            if (before % 2 == 0 && before == version_.load(std::memory_order_seq_cst)) return seen;
        }
    }

private:
    std::mutex changing_;
    std::atomic<std::uint64_t> version_{0};  // odd: being changed
    std::atomic<ABT_tool_thread_callback_fn> call_{nullptr};
    std::atomic<void*> arg_{nullptr};
};
registered_tool the_tool;

/// Whether the event follows from what was told of the unit last, which it then is. A wait may
/// park several times, or not at all, and a yield may come back at once: a tool is told of each
/// once.
bool follows(ABT_thread_opaque& who, std::uint64_t event, const awaited& what) noexcept {
    using enum told_stage;
    const told_stage before = who.told;
    const auto becomes = [&](bool possible, told_stage next) {
        if (possible) who.told = next;
        return possible;
    };
    switch (event) {
        case ABT_TOOL_EVENT_THREAD_CREATE:
        case ABT_TOOL_EVENT_THREAD_REVIVE:
            return becomes(true, ready);
        case ABT_TOOL_EVENT_THREAD_RUN:
            return becomes(before == unknown || before == ready || before == ready_after_wait,
                           runs);
        case ABT_TOOL_EVENT_THREAD_YIELD:
            return becomes(before != ended, ready);
        case ABT_TOOL_EVENT_THREAD_SUSPEND:
            return becomes(before == unknown || before == runs,
                           what.kind == ABT_SYNC_EVENT_TYPE_USER ? suspended : waits);
        case ABT_TOOL_EVENT_THREAD_RESUME:
            return becomes(before == unknown || before == suspended || before == waits,
                           before == waits ? ready_after_wait : ready);
        case ABT_TOOL_EVENT_THREAD_CANCEL:
        case ABT_TOOL_EVENT_THREAD_FINISH:
            return becomes(before != ended, ended);
        default:
            return true;
    }
}

/// Whether it happens to a unit on its own stream.
bool is_on_its_stream(std::uint64_t event) noexcept {
    return (event & (ABT_TOOL_EVENT_THREAD_RUN | ABT_TOOL_EVENT_THREAD_FINISH |
                     ABT_TOOL_EVENT_THREAD_CANCEL | ABT_TOOL_EVENT_THREAD_YIELD |
                     ABT_TOOL_EVENT_THREAD_SUSPEND)) != 0;
}

bool is_main_scheduler(const ABT_thread_opaque& who) noexcept {
    return who.kind == thread_kind::scheduler &&
           static_cast<const ABT_sched_opaque*>(who.arg)->main_of != nullptr;
}

/// A main scheduler has 0, what runs on it 1, what that runs 2.
int depth_on(const ABT_xstream_opaque& stream, const ABT_thread_opaque& who) noexcept {
    if (is_main_scheduler(who)) return 0;
    return 1 + static_cast<int>(std::count_if(stream.calling.begin(), stream.calling.end(),
                                              [&](const ABT_thread_opaque* each) {
                                                  return each != &who && !is_main_scheduler(*each);
                                              }));
}

}  // namespace

void tell_tool_slowly(ABT_thread_opaque& who, std::uint64_t event, awaited what) noexcept {
    if (!follows(who, event, what)) return;
    const tool told = the_tool.get();
    if ((told.events & event) == 0) return;
    ABT_thread_opaque* const caller = self();
    const ABT_thread_opaque* const at = is_on_its_stream(event) ? &who : caller;
    ABT_xstream const stream = at == nullptr ? nullptr : at->stream.load(std::memory_order_relaxed);
    const int depth = at == &who && stream != nullptr ? depth_on(*stream, who) : 0;
    ABT_tool_context_opaque context{caller, who.pool.load(), depth, what};
    called("an exception escaped from a tool's callback",
           [&] { told.call(&who, stream, event, &context, told.arg); });
}

// One that waits for a lock and the like goes on although it was canceled, until it next yields.
void tell_tool_begun_slowly(ABT_thread_opaque& who) noexcept {
    const bool ends = who.told == told_stage::ready && who.canceled.load(std::memory_order_acquire);
    tell_tool_slowly(who, ends ? ABT_TOOL_EVENT_THREAD_CANCEL : ABT_TOOL_EVENT_THREAD_RUN, {});
}

void tell_tool_goes_on_slowly(ABT_thread_opaque& who) noexcept {
    tell_tool_ready(who);
    if (who.told == told_stage::ready || who.told == told_stage::ready_after_wait)
        tell_tool_begun_slowly(who);
}

}  // namespace amalgam::argobots

int ABT_tool_register_thread_callback(ABT_tool_thread_callback_fn cb_func, uint64_t event_mask,
                                      void* user_arg) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (ABT_thread_opaque* const me = self()) me->told = told_stage::runs;
    the_tool.set(
        {cb_func, user_arg, cb_func == nullptr ? 0 : event_mask & ABT_TOOL_EVENT_THREAD_ALL});
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
            *static_cast<int*>(val) = context->depth;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_CALLER_TYPE:
            *static_cast<ABT_exec_entity_type*>(val) =
                context->caller == nullptr ? ABT_EXEC_ENTITY_TYPE_EXT : ABT_EXEC_ENTITY_TYPE_THREAD;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_CALLER_HANDLE:
            *static_cast<ABT_thread*>(val) = context->caller;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_SYNC_OBJECT_TYPE:
            *static_cast<ABT_sync_event_type*>(val) = context->what.kind;
            return ABT_SUCCESS;
        case ABT_TOOL_QUERY_KIND_SYNC_OBJECT_HANDLE:
            *static_cast<const void**>(val) = context->what.object;
            return ABT_SUCCESS;
    }
    return ABT_ERR_INV_QUERY_KIND;
}
