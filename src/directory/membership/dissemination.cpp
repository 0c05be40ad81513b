#include "directory/membership/dissemination.hpp"

#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/limits.hpp"
#include "directory/membership/tree_call.hpp"

namespace amalgam::detail {

dissemination::dissemination(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                             observers observe)
    : runtime_(runtime),
      view_(view),
      peers_(peers),
      observe_(std::move(observe)),
      tell_(runtime.on.procedure<in_ring::tell>(in_ring::tell_name)) {}

void dissemination::start() {
    runtime_.serve(*this, in_ring::tell_name, &dissemination::told);
}

ring_news dissemination::learn(const ring_news& news) {
    auto [fresh, was_wrong] = view_.learn(news, runtime_.now());
    for (const departure& each : fresh.gone)
        peers_.drop(each.key);
    observe_.heard(news.came);
    if (was_wrong) runtime_.run_for_others([this] { refute(); });
    const auto here = runtime_.here.lock();
    for (const departure& each : fresh.gone)
        if (here) here->lose_server(each.key);
    if (!fresh.came.empty()) {
        has_met_.set();
        if (here) here->see_servers(view_.keys());
        observe_.met();
    }
    return std::move(fresh);
}

void dissemination::tell_all(const ring_news& news) {
    {
        const std::lock_guard one(lock_);
        untold_.came.insert(untold_.came.end(), news.came.begin(), news.came.end());
        untold_.gone.insert(untold_.gone.end(), news.gone.begin(), news.gone.end());
        if (std::exchange(telling_, true)) return;
    }
    runtime_.run([this] { tell_now(); });
}

void dissemination::tell_now() {
    (void)runtime_.stopping.wait_for(limits::gather_time);
    ring_news news;
    {
        const std::lock_guard one(lock_);
        news = std::exchange(untold_, {});
        telling_ = false;
    }
    pass_on(view_.all_others(), news);
}

void dissemination::tell(const peer& there, std::uint64_t key, const ring_news& news) {
    (void)tell_.on(there)
        .within(runtime_.options.answer_limit)
        .try_call(ring_part{key, 0, 1}, news);
}

void dissemination::told(ring_part part, ring_news news) {
    view_.check_is_in(part);
    std::erase_if(news.came, [](const member& each) { return !is_proper(each); });
    learn(news);
    runtime_.run_for_others([this, part, news = std::move(news)] { pass_on(part, news); });
}

void dissemination::pass_on(const ring_part& part, const ring_news& news) {
    tree_call all(runtime_, view_, peers_, part, runtime_.options.answer_limit,
                  [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                      return tell_.on(there).within(within).start(its, news);
                  });
    while (all.next()) {
    }
}

void dissemination::remove(const departure& what) {
    const ring_news fresh = learn({{}, {what}});
    if (fresh.empty()) return;
    log(log_level::info, "directory", "another directory is gone", {{"key", what.key}});
    tell_all(fresh);
}

void dissemination::refute() {
    log(log_level::info, "directory", "the other directories considered this one gone");
    ring_news news;
    news.came.push_back(view_.locked([](member& self, const member_table&) {
        ++self.version;
        return self;
    }));
    tell_all(news);
}

}  // namespace amalgam::detail
