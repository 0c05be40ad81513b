#include "rpc/serve/late_answer.hpp"

#include <exception>
#include <utility>

#include <amalgam/rpc/detail/outgoing_values.hpp>

#include "rpc/serve/server.hpp"

namespace amalgam::detail {

late_answer::late_answer(const arrived_call& call, invocation& handler, std::uint32_t window)
    : served_call(call),
      alive_(call.owner.context().core()),
      values_(&call.owner.context().buffers(), &call.what.options.context),
      record_(*this, values_,
              [](answer_record& self) noexcept {
                  static_cast<late_answer&>(self.call).drop_reference();
              }),
      handler_(&handler) {
    if (window != 0) items_ = std::make_unique<item_sender>(*this, window);
}

late_answer::~late_answer() {
    if (source_ != nullptr) source_->drop_reference();
}

engine_core& late_answer::core() noexcept {
    return owner_.context().core();
}

bool late_answer::handler_unwinds() const noexcept {
    return std::uncaught_exceptions() != 0 && call_context::try_current() == handler_;
}

void late_answer::send(status what, std::string_view text) noexcept {
    record_.frame(what, text);
    if (owner_.context().on_owner()) return answer_record::run_send(record_);
    if (!owner_.context().hand_over(record_)) drop_reference();  // The engine has ended.
}

void late_answer::handler_done() noexcept {
    {
        const std::lock_guard hold(busy_);
        handler_ = nullptr;
    }
    drop_reference();
}

const void* late_answer::unit() noexcept {
    const std::lock_guard hold(busy_);
    return handler_ != nullptr ? handler_->unit() : nullptr;
}

void late_answer::send_later(status what, std::string_view text) noexcept {
    record_.frame(what, text);
    if (!owner_.context().hand_over(record_)) drop_reference();  // The engine has ended.
}

bool late_answer::answer_with(outgoing_values& values) noexcept {
    const std::lock_guard hold(busy_);
    if (canceled()) return false;
    values.add_reference();
    source_ = &values;
    return true;
}

void late_answer::cancel() noexcept {
    outgoing_values* source = nullptr;
    {
        const std::lock_guard hold(busy_);
        set_canceled();
        if (handler_ != nullptr) handler_->cancel();
        source = source_;
    }
    if (items_) items_->stop_waiting();
    if (source != nullptr) source->reader_left();
}

}  // namespace amalgam::detail
