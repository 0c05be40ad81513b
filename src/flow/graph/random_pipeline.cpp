#include "flow/graph/random_pipeline.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <amalgam/core/hash.hpp>

namespace amalgam::random_pipeline {
namespace {

using send = std::function<void(item)>;

/// One stage's behavior, for both the graph and the loop.
class behaviour {
public:
    behaviour(kind what, std::uint64_t salt) : what_(what), salt_(salt) {}

    void process(item in, const send& out) {
        std::uint64_t dice = mix(in.value ^ salt_);
        sum_ += in.value;
        switch (what_) {
            case kind::change:
                in.value = dice;
                out(std::move(in));
                break;
            case kind::drop:
                if (dice % 3 != 0) out(std::move(in));
                break;
            case kind::repeat:
                if (dice % 4 == 0) out(in);
                out(std::move(in));
                break;
            case kind::grow:
                in.text.append(dice % 199 == 0 ? 5000 : dice % 20, char('a' + dice % 26));
                out(std::move(in));
                break;
            case kind::sum_up:
                out(std::move(in));
                break;
            case kind::swallow:
                break;
        }
    }
    void end(const send& out) {
        if (what_ == kind::sum_up || what_ == kind::swallow) out({mix(sum_), "sum"});
    }

private:
    kind what_;
    std::uint64_t salt_;
    std::uint64_t sum_ = 0;
};

item made(const plan& from, std::uint64_t number) {
    return {mix(from.seed + number), std::string(number % 7, '.')};
}

struct making : source<item> {
    explicit making(const plan& asked) : from(asked) {}
    void start(const place& here) { where = here; }
    void generate(outlet<item>& out) {
        for (std::uint64_t i = where.replica; i < from.items; i += where.replicas)
            out.send(made(from, i));
    }
    const plan& from;
    place where;
};

struct changing : stage<item, item> {
    changing(kind what, std::uint64_t salt) : does(what, salt) {}
    void process(item in, outlet<item>& out) {
        does.process(std::move(in), [&out](item made) { out.send(std::move(made)); });
    }
    void end(outlet<item>& out) {
        does.end([&out](item made) { out.send(std::move(made)); });
    }
    behaviour does;
};

struct keeping : sink<item> {
    explicit keeping(std::vector<item>& into) : results(into) {}
    void consume(item got) { results.push_back(std::move(got)); }
    std::vector<item>& results;
};

}  // namespace

bool plan::replicated() const noexcept {
    return std::any_of(replicas.begin(), replicas.end(), [](std::size_t n) { return n > 1; });
}

plan draw(std::uint64_t seed, bool replicas) {
    seeded_random random(seed);
    plan made;
    made.seed = seed;
    made.items = random.chance(0.1) ? random.below(3) : random.below(600);
    std::size_t stages = random.below(6);
    for (std::size_t i = 0; i < stages; ++i) {
        auto all = static_cast<std::uint64_t>(replicas ? kind::sum_up : kind::swallow);
        made.stages.push_back(static_cast<kind>(random.below(replicas ? all : all + 1)));
    }
    std::size_t groups = 1 + random.below(std::min<std::size_t>(stages + 2, 5));
    std::vector<bool> cut(stages + 1);  // Between one node and the next.
    for (std::size_t left = groups - 1; left > 0;) {
        std::size_t at = random.below(cut.size());
        if (!cut[at]) --left;
        cut[at] = true;
    }
    made.group_of.push_back(0);
    for (bool here : cut)
        made.group_of.push_back(made.group_of.back() + (here ? 1 : 0));
    for (std::size_t g = 0; g < groups; ++g)
        made.replicas.push_back(replicas ? 1 + random.below(3) : 1);
    return made;
}

void build(graph& into, const plan& from, std::vector<item>& results) {
    auto group_of = [&](std::size_t node) {
        return into.group("G" + std::to_string(from.group_of[node]));
    };
    auto first = into.add<making>("source", from);
    auto last = into.add<keeping>("sink", results);
    group_of(0).add(first);
    auto so_far = into.pipeline(first);
    for (std::size_t i = 0; i < from.stages.size(); ++i) {
        auto next = into.add<changing>("stage" + std::to_string(i), from.stages[i], from.seed + i);
        group_of(i + 1).add(next);
        so_far = into.pipeline(so_far, next);
    }
    group_of(from.stages.size() + 1).add(last);
    into.pipeline(so_far, last);
}

std::vector<item> expected(const plan& from) {
    std::vector<item> items;
    for (std::uint64_t i = 0; i < from.items; ++i)
        items.push_back(made(from, i));
    for (std::size_t i = 0; i < from.stages.size(); ++i) {
        std::vector<item> next;
        behaviour does(from.stages[i], from.seed + i);
        send keep = [&next](item one) { next.push_back(std::move(one)); };
        for (item& one : items)
            does.process(std::move(one), keep);
        does.end(keep);
        items = std::move(next);
    }
    return items;
}

}  // namespace amalgam::random_pipeline
