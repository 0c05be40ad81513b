#include "rpc/tracing/unit_events.hpp"

#include <exception>

#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/tasks/task_hook.hpp>

namespace amalgam::detail {

namespace {

std::string_view name_of(const task_event_info& unit) noexcept {
    if (!unit.name.empty()) return unit.name;
    if (unit.kind == unit_kind::ult) return "ULT";
    return unit.kind == unit_kind::tasklet ? "tasklet" : "unit";
}

void tell(const task_event_info& event) {
    switch (event.what) {
        case task_event::running:
        case task_event::yielded:
        case task_event::resumed:
        case task_event::ended:
            return record_unit(static_cast<std::uint8_t>(event.what), event.id,
                               trace_text(name_of(event)), 0);
        case task_event::parked:
            return record_unit(static_cast<std::uint8_t>(event.what), event.id,
                               trace_text(name_of(event)),
                               event.waits_for != nullptr ? trace_text(event.waits_for) : 0);
        default:
            return;
    }
}

}  // namespace

void record_units() noexcept {
    static const task_hook* const hook = []() -> const task_hook* {
        try {
            return new task_hook(&tell);  // Never destroyed: streams may outlive every static.
        } catch (const std::exception& why) {
            log(log_level::warn, "trace", "ULTs are not traced", {{"why", why.what()}});
            return nullptr;
        }
    }();
    static_cast<void>(hook);
}

}  // namespace amalgam::detail
