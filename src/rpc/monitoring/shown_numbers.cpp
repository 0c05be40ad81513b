#include "rpc/monitoring/shown_numbers.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/merged_metrics.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/metrics_server.hpp>

#include "rpc/core/core.hpp"
#include "rpc/monitoring/metrics.hpp"

namespace amalgam::detail {

namespace {

constexpr const char* variable = "AMALGAM_METRICS";

/// Not destroyed: an engine may be destroyed where its server's thread, which may be waiting for
/// that engine, must not be waited for.
class shown_engines {
public:
    /// In a child of fork() a new one: another thread of the parent may have held the lock of the
    /// old one, which nobody would ever release there. So there is no lock around this either.
    static shown_engines& of_process() {
        shown_engines* now = only_.load(std::memory_order_acquire);
        if (is_of_this_process(now)) return *now;
        auto fresh = std::make_unique<shown_engines>();
        while (!is_of_this_process(now)) {
            if (!only_.compare_exchange_weak(now, fresh.get(), std::memory_order_acq_rel)) continue;
            // The parent's server has not come along. Its socket has, and would keep the address.
            if (now != nullptr) now->server_.reset();
            return *fresh.release();
        }
        return *now;
    }
    /// Null: no engine of this process was ever shown.
    static shown_engines* if_any() noexcept {
        shown_engines* const now = only_.load(std::memory_order_acquire);
        return is_of_this_process(now) ? now : nullptr;
    }

    void add(engine_core& core, const char* address) {
        const std::lock_guard hold(lock_);
        if (server_ == nullptr && !refused_) start(address);
        if (server_ != nullptr) all_.push_back({&core, label_for(core)});
    }
    void remove(const engine_core& core) noexcept {
        const std::lock_guard hold(lock_);
        std::erase_if(all_, [&](const shown_engine& each) { return each.core == &core; });
    }

private:
    struct shown_engine {
        engine_core* core;
        std::string label;  ///< Its own as long as it lives.
    };

    /// Its name, and "name 2" and so on where others have that.
    std::string label_for(engine_core& core) const {
        const std::string name = core.configuration().options.name;
        std::string label = name;
        for (std::size_t number = 2; is_taken(label); ++number)
            label = fmt::format("{} {}", name, number);
        return label;
    }
    bool is_taken(const std::string& label) const {
        return std::any_of(all_.begin(), all_.end(),
                           [&](const shown_engine& each) { return each.label == label; });
    }

    void start(const char* address) {
        try {
            server_ = std::make_unique<metrics_server>([this] { return read(); }, address);
        } catch (const error& why) {
            if (why.code() != errc::in_use)
                throw error(why.code(), fmt::format("{} is wrong: {}", variable, why.what()));
            refused_ = true;
            log(log_level::warn, "rpc", "AMALGAM_METRICS is not served by this process",
                {{"why", why.what()}});
            return;
        }
        const std::string_view chosen(address);
        if (chosen.substr(0, chosen.find('?')).ends_with(":0"))
            std::fprintf(stderr, "amalgam: numbers at %s\n", server_->url().c_str());
    }

    metric_snapshot read() {
        std::vector<std::unique_ptr<core_reference>> alive;
        std::vector<shown_engine> all;
        {
            const std::lock_guard hold(lock_);
            all = all_;
            for (const shown_engine& each : all)
                alive.push_back(std::make_unique<core_reference>(*each.core));
        }
        std::vector<metric_part> parts;
        for (const shown_engine& each : all)
            parts.push_back({{{"engine", each.label}}, read_metrics(*each.core)});
        return merge_metrics(parts);
    }

    static bool is_of_this_process(const shown_engines* one) noexcept {
        return one != nullptr && !one->forked_.is_in_child();
    }

    static inline std::atomic<shown_engines*> only_{nullptr};

    std::mutex lock_;
    std::vector<shown_engine> all_;
    std::unique_ptr<metrics_server> server_;
    const fork_check forked_;
    bool refused_ = false;
};

}  // namespace

void show_numbers_of(engine_core& core) {
    if (core.driven()) return;  // Its clock stands still while nobody runs it.
    const char* const address = ::secure_getenv(variable);
    if (address != nullptr && *address != '\0') shown_engines::of_process().add(core, address);
}

void hide_numbers_of(engine_core& core) noexcept {
    // Not by the variable, which may have changed.
    if (shown_engines* const all = shown_engines::if_any()) all->remove(core);
}

}  // namespace amalgam::detail
