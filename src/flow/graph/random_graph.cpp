#include "flow/graph/random_graph.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <amalgam/core/hash.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::random_graph {
namespace {

using send = std::function<void(item)>;

void change(kind what, std::uint64_t salt, item in, const send& out) {
    const std::uint64_t dice = mix(in.value ^ salt);
    if (what == kind::drop && dice % 5 == 0) return;
    if (what == kind::repeat && dice % 7 == 0) {
        item twin = in;
        twin.value = mix(dice + 1);
        out(twin);
    }
    in.value = dice;
    out(in);
}

bool again(std::uint64_t salt, const item& one) {
    return one.passes % (2 + salt % 3) != 0;
}

std::uint64_t key_of(const item& one) {
    return one.value % 97;
}
std::size_t chosen_of(const item& one, std::size_t workers) {
    return one.value % workers;
}

// ---- as a graph

/// Detects items from one sender that arrive out of order.
class order_check {
public:
    explicit order_check(std::string name, outcome& into) : name_(std::move(name)), into_(into) {}

    void operator()(const item& one, std::size_t from) {
        if (last_.size() <= from) last_.resize(from + 1);
        if (one.order <= last_[from])
            into_.overtaken = name_ + " from " + std::to_string(from) + ": " +
                              std::to_string(one.order) + " after " + std::to_string(last_[from]);
        last_[from] = one.order;
    }
    void reset() { last_.clear(); }

private:
    std::string name_;
    outcome& into_;
    std::vector<std::uint64_t> last_;
};

struct making : source<item> {
    making(const plan& from, std::size_t number, bool endless)
        : from_(from), number_(number), endless_(endless) {}
    void generate(outlet<item>& out) {
        for (std::uint64_t i = 0; endless_ || i < from_.items; ++i) {
            out.send({mix(from_.seed + number_ * from_.items + i), 0, i + 1});
            if (endless_ && i % 50 == 0) this_task::sleep_for(std::chrono::milliseconds(1));
        }
    }
    const plan& from_;
    std::size_t number_;
    bool endless_;
};

struct changing : stage<item, item> {
    changing(kind what, std::uint64_t salt, bool counts, order_check check)
        : what_(what), salt_(salt), counts_(counts), check_(std::move(check)) {}
    void process(item in, outlet<item>& out, std::size_t from) {
        check_(in, from);
        if (counts_) ++in.passes;
        change(what_, salt_, in, [&](item made) {
            made.order = ++sent_;
            out.send(made);
        });
    }
    kind what_;
    std::uint64_t salt_;
    bool counts_;
    order_check check_;
    std::uint64_t sent_ = 0;
};

/// A worker of an ordered farm: its output is in order if the farm keeps that of its input.
struct changing_in_order : stage<item, item> {
    changing_in_order(kind what, std::uint64_t salt) : what_(what), salt_(salt) {}
    void process(item in, outlet<item>& out) {
        std::uint64_t order = 2 * in.order;
        change(what_, salt_, in, [&](item made) {
            made.order = order++;
            out.send(made);
        });
    }
    kind what_;
    std::uint64_t salt_;
};

struct keeping : sink<item> {
    keeping(std::vector<std::uint64_t>& into, order_check check, bool endless, const outcome& all)
        : into_(into), check_(std::move(check)), endless_(endless), all_(all) {}
    void consume(const item& got, std::size_t from) {
        check_(got, from);
        if (!endless_) return into_.push_back(got.value);
        if (all_.on_item) all_.on_item(++count_);
    }
    std::vector<std::uint64_t>& into_;
    order_check check_;
    bool endless_;
    const outcome& all_;
    std::uint64_t count_ = 0;
};

using line = block<item, item>;

class builder {
public:
    builder(graph& g, const plan& from, outcome& into, bool endless)
        : g_(g), from_(from), into_(into), endless_(endless), random_(from.seed + 1) {}

    void build() {
        into_.got.resize(from_.sinks);
        std::vector<block<void, item>> sources;
        for (std::size_t i = 0; i < from_.sources; ++i)
            sources.push_back(
                placed(g_.add<making>("source" + std::to_string(i), from_, i, endless_)));
        std::vector<block<item, void>> sinks;
        for (std::size_t i = 0; i < from_.sinks; ++i) {
            const std::string name = "sink" + std::to_string(i);
            sinks.push_back(placed(
                g_.add<keeping>(name, into_.got[i], order_check(name, into_), endless_, into_)));
        }
        auto body = block_of(from_.body, 0);
        g_.pipeline(g_.farm(sources), body, spread_over(from_.last, [&](const auto& routing) {
                        return g_.farm(sinks, routing);
                    }));
    }

private:
    template <typename Farm>
    static auto spread_over(policy how, Farm farm) -> decltype(farm(round_robin)) {
        switch (how) {
            case policy::demand:
                return farm(on_demand(3));
            case policy::key:
                return farm(by_key(key_of));
            case policy::everybody:
                return farm(broadcast);
            case policy::chosen:
                return farm(route_by(chosen_of));
            case policy::turns:
                break;
        }
        return farm(round_robin);
    }

    template <typename In, typename Out>
    block<In, Out> placed(block<In, Out> node) {
        const std::size_t group = held_ ? held_group_ : random_.below(from_.groups);
        if (from_.groups == 1) return node;
        const auto known = std::find(used_.begin(), used_.end(), group);
        const auto number = static_cast<std::size_t>(known - used_.begin());
        if (known == used_.end()) used_.push_back(group);
        g_.group("G" + std::to_string(number)).add(node);
        return node;
    }
    line node(kind what, std::uint64_t salt, bool counts) {
        const std::string name = "n" + std::to_string(nodes_++);
        return placed(g_.add<changing>(name, what, salt, counts, order_check(name, into_)));
    }
    std::vector<line> copies(const plan_block& of, std::size_t count, policy spread,
                             std::uint64_t extra) {
        std::vector<line> all;
        for (std::size_t i = 0; i < count; ++i)
            all.push_back(block_of(of, extra + salt_of_copy(spread, i)));
        return all;
    }

public:
    /// If an item's route depends only on the item, the workers differ.
    static std::uint64_t salt_of_copy(policy spread, std::size_t number) {
        return spread == policy::turns || spread == policy::demand ? 0 : 1000003 * (number + 1);
    }

private:
    line block_of(const plan_block& plan, std::uint64_t extra) {
        switch (plan.what) {
            case kind::pipeline: {
                line made = block_of(plan.parts.front(), extra);
                for (std::size_t i = 1; i < plan.parts.size(); ++i)
                    made = g_.pipeline(made, block_of(plan.parts[i], extra));
                return made;
            }
            case kind::farm: {
                const auto workers = copies(plan.parts[0], plan.width, plan.spread, extra);
                return spread_over(plan.spread,
                                   [&](const auto& routing) { return g_.farm(workers, routing); });
            }
            case kind::all_to_all: {
                const auto left = copies(plan.parts[0], plan.width, policy::turns, extra);
                const auto right = copies(plan.parts[1], plan.right_width, plan.spread, extra);
                return spread_over(plan.spread, [&](const auto& routing) {
                    return g_.all_to_all(left, right, routing);
                });
            }
            case kind::feedback: {
                const line entry = node(kind::change, plan.salt + extra, true);
                const line body = g_.pipeline(entry, block_of(plan.parts[0], extra));
                return g_.feedback(
                    body, [salt = plan.salt](const item& one) { return again(salt, one); });
            }
            case kind::combine: {
                const auto hold = held();
                line made = block_of(plan.parts.front(), extra);
                for (std::size_t i = 1; i < plan.parts.size(); ++i)
                    made = g_.combine(made, block_of(plan.parts[i], extra));
                return made;
            }
            case kind::ordered_farm: {
                const line before = node(kind::change, plan.salt + extra, false);
                const auto farm = g_.add_ordered_farm<changing_in_order>(
                    "o" + std::to_string(nodes_++), plan.width, plan.parts[0].what,
                    plan.parts[0].salt + extra);
                placed(farm.emitter);
                for (const auto& worker : farm.workers)
                    placed(worker);
                placed(farm.collector);
                return g_.pipeline(before, farm);
            }
            default:
                return node(plan.what, plan.salt + extra, false);
        }
    }

    /// While one lives, all nodes go into one group.
    struct holding {
        builder& of;
        bool outermost;
        ~holding() {
            if (outermost) of.held_ = false;
        }
    };
    holding held() {
        const bool outermost = !held_;
        if (outermost) held_group_ = random_.below(from_.groups);
        held_ = true;
        return {*this, outermost};
    }

    graph& g_;
    const plan& from_;
    outcome& into_;
    bool endless_;
    seeded_random random_;
    std::size_t nodes_ = 0;
    bool held_ = false;
    std::size_t held_group_ = 0;
    std::vector<std::size_t> used_;  ///< Groups in order of their first node.
};

// ---- as a plain loop

void follow(const plan_block& plan, std::uint64_t extra, item in, const send& out);

void follow_parts(const plan_block& plan, std::size_t part, std::uint64_t extra, item in,
                  const send& out) {
    if (part == plan.parts.size()) return out(in);
    follow(plan.parts[part], extra, in,
           [&](item made) { follow_parts(plan, part + 1, extra, made, out); });
}

void follow_spread(const plan_block& plan, std::size_t width, policy spread, std::uint64_t extra,
                   item in, const send& out) {
    const auto to = [&](std::size_t worker) {
        follow(plan, extra + builder::salt_of_copy(spread, worker), in, out);
    };
    if (spread == policy::everybody)
        for (std::size_t i = 0; i < width; ++i)
            to(i);
    else if (spread == policy::key)
        to(detail::hash_of_key(key_of(in)) % width);
    else if (spread == policy::chosen)
        to(chosen_of(in, width));
    else
        to(0);
}

void follow(const plan_block& plan, std::uint64_t extra, item in, const send& out) {
    switch (plan.what) {
        case kind::pipeline:
        case kind::combine:
            return follow_parts(plan, 0, extra, in, out);
        case kind::farm:
            return follow_spread(plan.parts[0], plan.width, plan.spread, extra, in, out);
        case kind::all_to_all:
            return follow(plan.parts[0], extra, in, [&](item made) {
                follow_spread(plan.parts[1], plan.right_width, plan.spread, extra, made, out);
            });
        case kind::feedback: {
            std::vector<item> inside{in};
            while (!inside.empty()) {
                item one = inside.back();
                inside.pop_back();
                ++one.passes;
                change(kind::change, plan.salt + extra, one, [&](item entered) {
                    follow(plan.parts[0], extra, entered, [&](item made) {
                        again(plan.salt, made) ? inside.push_back(made) : out(made);
                    });
                });
            }
            return;
        }
        case kind::ordered_farm:
            return change(kind::change, plan.salt + extra, in,
                          [&](item made) { follow_parts(plan, 0, extra, made, out); });
        default:
            return change(plan.what, plan.salt + extra, in, out);
    }
}

// ---- drawing

policy draw_policy(seeded_random& random) {
    return static_cast<policy>(random.below(5));
}

plan_block draw_block(seeded_random& random, std::size_t depth, std::size_t& room) {
    plan_block made;
    made.salt = random.below(1u << 30);
    const bool leaf = depth == 0 || room == 0 || random.chance(0.25);
    if (leaf) {
        if (room > 0) --room;
        made.what = static_cast<kind>(random.below(3));
        return made;
    }
    made.what = static_cast<kind>(3 + random.below(6));
    const auto part = [&] { made.parts.push_back(draw_block(random, depth - 1, room)); };
    switch (made.what) {
        case kind::pipeline:
            for (std::size_t i = 2 + random.below(2); i > 0; --i)
                part();
            break;
        case kind::all_to_all:
            part();
            part();
            made.width = 1 + random.below(3);
            made.right_width = 1 + random.below(3);
            made.spread = draw_policy(random);
            break;
        case kind::combine:
            for (std::size_t i = 2 + random.below(2); i > 0; --i) {
                std::size_t none = 0;
                made.parts.push_back(draw_block(random, 0, none));
            }
            break;
        case kind::ordered_farm: {
            made.width = 1 + random.below(4);
            std::size_t none = 0;
            made.parts.push_back(draw_block(random, 0, none));
            break;
        }
        case kind::farm:
            made.width = 1 + random.below(3);
            made.spread = draw_policy(random);
            part();
            break;
        default:
            part();
    }
    // Items repeatedly doubled inside a loop are not tested.
    return made;
}

void without_growth(plan_block& block) {
    if (block.what == kind::repeat) block.what = kind::drop;
    if (block.spread == policy::everybody) block.spread = policy::demand;
    for (plan_block& each : block.parts)
        without_growth(each);
}
void bound_growth(plan_block& block) {
    if (block.what == kind::feedback) return without_growth(block);
    for (plan_block& each : block.parts)
        bound_growth(each);
}

}  // namespace

plan draw(std::uint64_t seed, std::size_t most_groups) {
    seeded_random random(seed);
    plan made;
    made.seed = seed;
    made.items = random.chance(0.1) ? random.below(3) : random.below(120);
    made.sources = 1 + random.below(3);
    std::size_t room = 8;
    made.body = draw_block(random, 1 + random.below(3), room);
    bound_growth(made.body);
    made.sinks = 1 + random.below(3);
    made.last = draw_policy(random);
    made.groups = 1 + random.below(most_groups);
    return made;
}

void build(graph& g, const plan& from, outcome& into, bool endless) {
    builder(g, from, into, endless).build();
}

std::vector<std::uint64_t> expected(const plan& from) {
    std::vector<std::uint64_t> all;
    const std::size_t copies = from.last == policy::everybody ? from.sinks : 1;
    for (std::uint64_t i = 0; i < from.sources * from.items; ++i)
        follow(from.body, 0, {mix(from.seed + i), 0, 0},
               [&](item one) { all.insert(all.end(), copies, one.value); });
    std::sort(all.begin(), all.end());
    return all;
}

std::vector<std::uint64_t> all_of(const outcome& what) {
    std::vector<std::uint64_t> all;
    for (const auto& each : what.got)
        all.insert(all.end(), each.begin(), each.end());
    std::sort(all.begin(), all.end());
    return all;
}

std::vector<std::string> groups_of(const plan& from) {
    graph g;
    outcome nowhere;
    build(g, from, nowhere);
    return g.core().group_names();
}

}  // namespace amalgam::random_graph
