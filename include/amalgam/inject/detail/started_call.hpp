#pragma once

#include <atomic>
#include <exception>
#include <type_traits>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

/// A call in a ULT of its own, behind a future that can cancel it.
template <typename T>
class started_call final : public future_state<T> {
public:
    /// Takes ownership of this object.
    template <typename Call>
    future<T> launch(pool& where, Call call) {
        this->add_reference();  // The ULT's, which may end with its engine before it starts.
        runs_ = spawn(where, [mine = running(this), call = std::move(call)] {
            try {
                if (mine->now_.exchange(at::work) == at::canceled)
                    throw error(errc::canceled, not_begun);
                if constexpr (std::is_void_v<T>) {
                    call();
                    mine->set();
                } else {
                    mine->set(call());
                }
            } catch (...) {
                mine->fail(std::current_exception());
            }
        });
        this->on_abandon(
            [](void* me) noexcept {
                auto& call_of = *static_cast<started_call*>(me);
                if (call_of.now_.exchange(at::canceled) == at::work) call_of.runs_.cancel();
            },
            this);
        return future<T>(*this);
    }

private:
    enum class at { start, work, canceled };
    static constexpr const char* not_begun = "it was canceled before it began";
    struct ended {
        void operator()(started_call* call) const noexcept {
            if (!call->ready()) call->fail(failure{{errc::canceled}, not_begun});
            call->drop_reference();
        }
    };
    using running = std::unique_ptr<started_call, ended>;

    void recycle() noexcept override {
        runs_.detach();  // It has ended, or is about to.
        delete this;
    }

    ult runs_;
    std::atomic<at> now_{at::start};
};

}  // namespace amalgam::detail
