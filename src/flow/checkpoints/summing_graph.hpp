#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/flow/graph.hpp>

/// For tests of checkpoints: two sources in G0, keyed counters in G1, a sink in G2, all with state.
/// An item that is lost, or comes twice, changes what the sink has at its end.
namespace amalgam::detail::summing {

inline constexpr std::uint64_t keys = 7;

struct outcome {
    std::uint64_t items = 0;   ///< That have come through.
    std::uint64_t sum = 0;     ///< Of what they have become.
    std::uint64_t counts = 0;  ///< Told by the counters at their ends.
    std::uint64_t ends = 0;    ///< Number of these.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(items, sum, counts, ends);
    }
    bool operator==(const outcome&) const = default;
};

/// What tests watch, and may do.
struct hooks {
    std::function<void()> on_item = [] {};  ///< A counter, or the sink, has got one.
    std::function<void(const outcome&)> on_end = [](const outcome&) {};
    std::function<void()> between_steps = [] {};
};

/// Sends the numbers below `until`, a few per step.
struct numbers : source<std::uint64_t> {
    numbers(std::uint64_t last, const hooks& watched) : until(last), watch(&watched) {}
    bool step(outlet<std::uint64_t>& out) {
        watch->between_steps();
        for (int i = 0; i < 3 && at < until; ++i)
            out.send(at++);
        return at < until;
    }
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(at);
    }
    std::uint64_t at = 0;
    std::uint64_t until;
    const hooks* watch;
};

struct told {
    std::uint64_t value = 0;
    bool is_count = false;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(value, is_count);
    }
};

/// Passes items on, counts them by key, and tells the counts at its end.
struct counter : stage<std::uint64_t, told> {
    explicit counter(const hooks& watched) : watch(&watched) {}
    void process(std::uint64_t item, outlet<told>& out) {
        watch->on_item();
        ++count[item % keys];
        out.send({3 * item + 1, false});
    }
    void end(outlet<told>& out) {
        for (const auto& [key, items] : count)
            out.send({(key + 1) * items, true});
    }
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(count);
    }
    std::map<std::uint64_t, std::uint64_t> count;
    const hooks* watch;
};

/// Runs inside the counters' sender: has state, too.
struct doubler : stage<std::uint64_t, std::uint64_t> {
    void process(std::uint64_t item, outlet<std::uint64_t>& out) {
        out.send(item + (seen++ & 1));  // Alternates, by its state.
    }
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(seen);
    }
    std::uint64_t seen = 0;
};

struct summer : sink<told> {
    explicit summer(const hooks& watched) : watch(&watched) {}
    void consume(const told& item) {
        watch->on_item();
        if (item.is_count) {
            all.counts += item.value;
            ++all.ends;
        } else {
            all.sum += item.value;
            ++all.items;
        }
    }
    void end() { watch->on_end(all); }
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(all);
    }
    outcome all;
    const hooks* watch;
};

/// What is sent: each source is combined with a doubler of its own.
inline const std::vector<std::pair<std::string, std::uint64_t>> sources(std::uint64_t items) {
    return {{"long", items}, {"short", items / 3}};
}

inline void build(graph& into, std::uint64_t items, const hooks& watched) {
    std::vector<block<void, std::uint64_t>> left;
    for (const auto& [name, until] : sources(items))
        left.push_back(into.combine(into.add<numbers>(name, until, watched),
                                    into.add<doubler>(name + ".doubler")));
    std::vector<block<std::uint64_t, told>> right;
    for (int i = 0; i < 2; ++i)
        right.push_back(into.add<counter>("counter." + std::to_string(i), watched));
    auto to = into.add<summer>("summer", watched);
    auto plain = into.add_stage<told, told>("plain", [](told item) { return item; });
    into.pipeline(into.all_to_all(left, right, by_key([](std::uint64_t item) { return item; })),
                  plain, to);
    into.group("G0").add(left);
    into.group("G1").add(right);
    into.group("G2").add(plain, to);
}

/// The sums of a plain loop; `ends` depends on the routing.
inline outcome expected(std::uint64_t items) {
    outcome all;
    std::map<std::uint64_t, std::uint64_t> count;
    for (const auto& [name, until] : sources(items)) {
        std::uint64_t seen = 0;
        for (std::uint64_t i = 0; i < until; ++i) {
            const std::uint64_t item = i + (seen++ & 1);
            ++count[item % keys];
            all.sum += 3 * item + 1;
            ++all.items;
        }
    }
    for (const auto& [key, counted] : count)
        all.counts += (key + 1) * counted;
    return all;
}

}  // namespace amalgam::detail::summing
