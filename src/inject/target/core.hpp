#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/timer.hpp>

#include "inject/link/linked_image.hpp"
#include "inject/protocol/procedures.hpp"
#include "inject/source/core.hpp"
#include "inject/target/judge.hpp"
#include "inject/target/waiting_messages.hpp"

namespace amalgam::detail {

struct running_code;

/// Accepts code, and runs it.
///
/// Owner:   shared with running handlers.
/// Threads: any.
class target_core : public std::enable_shared_from_this<target_core> {
public:
    target_core(engine& on, injection_options options);

    void start();
    void stop() noexcept;
    std::size_t images() const;
    void set_policy(injection_policy allows);
    result<void> reload();
    std::uint64_t runs() const noexcept { return runs_.value() + inline_runs_.value(); }
    engine& where() const noexcept { return on_; }
    /// Runs code that did not arrive by a call; failures are logged.
    void run_polled(const_bytes code, const_bytes payload);

private:
    using entry = void (*)(void* payload, std::size_t bytes, void* target_args);
    /// A runnable image.
    struct ready_image {
        ready_image(const code_image& image, const image_symbols& symbols);
        linked_image linked;  ///< Not started if it is to run confined.
        entry main;
        std::size_t alignment;  ///< Of its payloads.
    };
    using ready = std::shared_ptr<ready_image>;
    /// For whom code is taken or run.
    struct caller {
        const call_context* call = nullptr;  ///< Null: by no call, or by one that has ended.
        const identity* who = nullptr;       ///< Of one that has ended; null: nobody is known.
        bool is_self = false;                ///< The same: by this engine.
    };

    // Procedures served: see at_target.
    run_answer run(image_id which, const_bytes payload);
    void run_inline(image_id which, const_bytes payload);
    void run_code_inline(const_bytes code, const_bytes payload);
    run_answer run_code(const_bytes code, const_bytes payload);
    run_answer run_attached(image_id which, const_bytes code,
                            const std::vector<amalgam::bulk>& attached, const_bytes payload);
    run_answer bring(const_bytes code);

    /// Runs `serve()` if requests are served, and the caller may make any; else why not.
    template <typename Serve>
    run_answer served(Serve serve) {
        if (door_.load(std::memory_order_relaxed) != 0) [[unlikely]]
            if (std::optional<run_answer> why = refuses()) return std::move(*why);
        return serve();
    }
    bool refuses_quickly() {
        return door_.load(std::memory_order_relaxed) != 0 && refuses().has_value();
    }
    /// Throws error{not_found} after the end.
    std::optional<run_answer> refuses();
    /// Throws error{denied} if the policy keeps the caller from that image; empty: from all.
    void check_caller(const caller& by, std::string_view image) const;
    bool asks_who_calls() const noexcept {
        return (door_.load(std::memory_order_relaxed) & asks) != 0;
    }
    ready find(image_id which);
    /// Validates, links and stores it; if `which` is given, only that image. Throws error.
    ready take(const_bytes code, const caller& by, std::optional<image_id> which = {});
    ready link(const code_image& image);
    /// Null if the policy changed in the meantime.
    ready keep(const ready& made, std::uint64_t checked_by);
    run_answer refuse(const error& why);
    std::uint64_t policy_number() const;
    /// Unloads what may not run any more; `only`: images of that name.
    void judge_again(std::string_view only = {});
    void forget_all() noexcept;
    /// Looks once a second while there is a revocation list, or an image that will expire.
    void watch();
    void watch_for(const code_image& image);
    void look() noexcept;
    void* symbol(std::string_view name) const;
    /// Returns a stored image, or fetches it. Throws error.
    ready fetch(waiting_messages::image_fetch& what, const caller& by);
    /// For code that arrives with each message.
    ready take_again(const_bytes code, const caller& by);
    run_answer fetch_and_run(image_id which, const_bytes payload,
                             std::span<const amalgam::bulk> attached);
    void fetch_and_run_later(image_id which, const_bytes payload);
    /// `call`: the call it arrived by; null if none.
    run_answer run_now(const ready& what, const_bytes payload,
                       std::span<const amalgam::bulk> attached = {},
                       call_context* call = call_context::try_current());
    run_answer run_confined_now(ready_image& what, const_bytes payload, running_code& here,
                                call_context* call);
    void run_quickly(ready_image& what, const_bytes payload);
    void run_main(ready_image& what, const_bytes payload, running_code& here, call_context* call);
    void* target_args() const;
    void log_failure(const ready_image& what, std::string_view why) const;

    engine& on_;
    /// Why a request must be looked at before it is served; mostly nothing.
    static constexpr std::uint8_t ended = 1, asks = 2;
    std::atomic<std::uint8_t> door_{0};
    const injection_options options_;  ///< Except what it allows, which may change.
    image_judge judge_;
    std::mutex changes_;  // One change of the policy at a time.
    const source_core onward_;
    const procedure<at_source::fetch> fetch_;
    const procedure<at_target::post> post_here_;
    counter runs_;
    owned_counter inline_runs_;
    counter& linked_count_;
    counter& refused_;
    counter_set::watch runs_watch_;

    struct kept {
        ready image;
        std::list<image_id>::iterator place;
    };
    mutable std::mutex lock_;
    std::list<image_id> by_use_;  // Least recently used first.
    std::unordered_map<image_id, kept> images_;
    std::uint64_t policies_ = 0;  // How often all were, or are to be, judged again.
    std::optional<std::chrono::sys_seconds> next_end_;  // When the first image may expire.
    const std::shared_ptr<waiting_messages> waiting_;
    semaphore confined_places_;
    // The latest code that arrived with its message, so that a repetition is not linked again.
    std::vector<std::byte> latest_code_;
    ready latest_of_code_;
    std::atomic<std::uint64_t> forgotten_{0};  // Counts removed images and policies.

    /// For inline handlers only: the image run last, by hash or code. Dropped with the next one.
    struct inline_image {
        std::uint64_t forgotten = 0;  ///< forgotten_ at that time; if it differs, the image may be
                                      ///< gone.
        image_id id = 0;
        ready image{};
        std::vector<std::byte> code{};
    };
    inline_image last_inline_;

    struct watch_timer : timer {
        watch_timer(execution_stream& where, target_core& core) noexcept;
        target_core& of;
    };
    watch_timer watch_;  // Armed under lock_, and not after the end.
    metric_registry::registration numbers_;
};

}  // namespace amalgam::detail
