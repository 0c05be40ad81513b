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
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/semaphore.hpp>

#include "inject/link/linked_image.hpp"
#include "inject/protocol/procedures.hpp"
#include "inject/source/core.hpp"
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

    // Procedures served: see at_target.
    run_answer run(image_id which, const_bytes payload);
    void run_inline(image_id which, const_bytes payload);
    void run_code_inline(const_bytes code, const_bytes payload);
    run_answer run_code(const_bytes code, const_bytes payload);
    run_answer run_attached(image_id which, const_bytes code,
                            const std::vector<amalgam::bulk>& attached, const_bytes payload);
    run_answer bring(const_bytes code);

    void check_serves() const;
    ready find(image_id which);
    /// Validates, links and stores it; if `which` is given, only that image. Throws error.
    ready take(const_bytes code, std::optional<image_id> which = {});
    ready link(const code_image& image);
    /// Null if the policy changed in the meantime.
    ready keep(const ready& made, std::uint64_t checked_by);
    run_answer refuse(const error& why);
    struct policy_now {
        std::shared_ptr<const injection_policy> allows;
        std::uint64_t number;
    };
    policy_now policy() const;
    void* symbol(std::string_view name) const;
    /// Returns a stored image, or fetches it. Throws error.
    ready fetch(waiting_messages::image_fetch& what);
    /// For code that arrives with each message.
    ready take_again(const_bytes code);
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
    std::atomic<bool> ended_{false};
    const injection_options options_;  ///< Except what it allows, which may change.
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
    std::shared_ptr<const injection_policy> allows_;
    std::uint64_t policies_ = 0;  // Number of earlier policies.
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
};

}  // namespace amalgam::detail
