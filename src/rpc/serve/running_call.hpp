#pragma once

#include <utility>

#include <amalgam/rpc/call_context.hpp>
#include <amalgam/tasks/extension/local.hpp>

namespace amalgam::detail {

/// Sets the current call while one lives.
class running_call {
public:
    explicit running_call(call_context& call) noexcept : running_call(call, task_local()) {}
    /// `local`: task_local().
    running_call(call_context& call, void*& local) noexcept
        : slot_(local), outer_(std::exchange(slot_, &call)) {}
    ~running_call() { slot_ = outer_; }
    running_call(const running_call&) = delete;
    running_call& operator=(const running_call&) = delete;

private:
    void*& slot_;
    void* outer_;
};

}  // namespace amalgam::detail
