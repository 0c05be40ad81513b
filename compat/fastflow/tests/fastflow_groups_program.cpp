// A distributed program with many graphs, for fastflow_groups_test: fastflow_groups_program CASE,
// and FastFlow's options. The last node of each compares what it got with a plain loop, and prints
// "right" or what was wrong.
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ff/dff.hpp>

#include "fastflow_groups_testing.hpp"
#include "few_threads.hpp"

using namespace ff;
using namespace ff::testing_groups;

namespace {

template <typename Base>
struct make : Base {
    explicit make(long n = items) : count(n) {}
    item* svc(item*) override {
        for (long i = 0; i != count; ++i)
            this->ff_send_out(new item{i, this->get_my_id(), std::string(i % 50, 'x')});
        return this->EOS;
    }
    long count;
};
template <typename Base>
struct add_one : Base {
    item* svc(item* what) override {
        ++what->number;
        what->from = this->get_my_id();
        return what;
    }
};
template <typename Base>
struct total : Base {
    explicit total(long expected_sum) : expected(expected_sum) {}
    item* svc(item* what) override {
        sum += what->number;
        delete what;
        return this->GO_ON;
    }
    void svc_end() override { check("the sum", sum, expected); }
    long expected;
    long sum = 0;
};

using plain = ff_node_t<item>;
using many_in = ff_minode_t<item>;
using many_out = ff_monode_t<item>;

/// The last node where each item came once, one larger, and in order.
struct in_order : total<plain> {
    in_order() : total<plain>(sum_to(items) + items) {}
    item* svc(item* what) override {
        if (what->number != ++next) ff::cout << "wrong: out of order\n";
        return total<plain>::svc(what);
    }
    long next = 0;
};

/// Three groups of one node; in order.
int stages() {
    in_order last;
    make<plain> first;
    add_one<plain> middle;
    ff_pipeline whole;
    whole.add_stage(&first);
    whole.add_stage(&middle);
    whole.add_stage(&last);
    first.createGroup("G1");
    middle.createGroup("G2");
    auto g3 = ff::createGroup("G3");
    g3 <<= last;
    return whole.run_and_wait_end();
}

/// A farm whose emitter, workers and collector are in three groups.
int farm() {
    make<many_out> emitter;
    add_one<plain> one, two, three;
    total<many_in> collector(sum_to(items) + items);
    ff_farm whole(std::vector<ff_node*>{&one, &two, &three}, &emitter, &collector);
    ff::createGroup("G1") << &emitter;
    ff::createGroup("G2") << &one << &two << three;
    ff::createGroup("G3") << &collector;
    return whole.run_and_wait_end();
}

/// An ordered farm with a worker elsewhere.
int ordered_farm() {
    in_order last;
    make<plain> first;
    std::vector<std::unique_ptr<ff_node>> workers;
    workers.push_back(std::make_unique<add_one<plain>>());
    workers.push_back(std::make_unique<add_one<plain>>());
    workers.push_back(std::make_unique<add_one<plain>>());
    ff_node* const there = workers.back().get();
    ff_OFarm<item> middle(std::move(workers));
    ff_pipeline whole;
    whole.add_stage(&first);
    whole.add_stage(&middle);
    whole.add_stage(&last);
    whole.createGroup("G1");
    ff::createGroup("G2") << there;
    ff::createGroup("G3") << &last;
    return whole.run_and_wait_end();
}

struct to_each : many_out {
    item* svc(item*) override {
        for (long i = 0; i != 100; ++i)
            for (std::size_t to = 0; to != get_num_outchannels(); ++to)
                ff_send_out_to(new item{static_cast<long>(to), get_my_id(), {}},
                               static_cast<int>(to));
        return EOS;
    }
};
struct from_each : many_in {
    item* svc(item* what) override {
        if (what->number != get_my_id()) ff::cout << "wrong: an item of another channel\n";
        if (what->from != get_channel_id()) ff::cout << "wrong: a channel of another node\n";
        ++count;
        delete what;
        return GO_ON;
    }
    void eosnotify(ssize_t id) override { ended.insert(id); }
    void svc_end() override {
        if (ended.size() != get_num_inchannels()) ff::cout << "wrong: not told of every end\n";
        check("items", count, 100 * static_cast<long>(get_num_inchannels()));
    }
    std::set<ssize_t> ended;
    long count = 0;
};

/// An all-to-all, left and right parts in groups of their own, or each group with some of both.
int all_to_all(bool mixed) {
    to_each left[2];
    from_each right[3];
    ff_a2a whole;
    whole.add_firstset(std::vector<ff_node*>{&left[0], &left[1]});
    whole.add_secondset(std::vector<ff_node*>{&right[0], &right[1], &right[2]});
    auto g1 = whole.createGroup("G1");
    auto g2 = whole.createGroup("G2");
    auto g3 = whole.createGroup("G3");
    if (mixed) {
        g1 << &left[0] << &right[0];
        g2 << &left[1] << &right[1];
        g3 << &right[2];
    } else {
        g1 << &left[0] << &left[1];
        g2 << &right[0] << &right[1];
        g3 << &right[2];
    }
    return whole.run_and_wait_end();
}

/// A loop in one group, or over two: each item goes round until it has been increased ten times.
int loop(bool cut, long count) {
    struct master : many_in {
        item* svc(item* what) override {
            if (fromInput()) {
                ++inside;
                return what;
            }
            if (what->from < 10) return what;
            sum += what->number;
            delete what;
            --inside;
            return inside == 0 && input_ended ? EOS : GO_ON;
        }
        void eosnotify(ssize_t) override {
            if (!input_ended && inside == 0) ff_send_out(EOS);  // The last item is back already.
            input_ended = true;
        }
        void svc_end() override { check("the sum", sum, sum_to(count) + count * 10); }
        long count = 0;
        long inside = 0, sum = 0;
        bool input_ended = false;
    } begin;
    struct increase : plain {
        item* svc(item* what) override {
            ++what->number;
            what->from = what->from < 0 ? 1 : what->from + 1;
            return what;
        }
    } end;
    struct few : plain {
        item* svc(item*) override {
            for (long i = 0; i != count; ++i)
                ff_send_out(new item{i, -1, {}});
            return EOS;
        }
        long count = 0;
    } source;
    begin.count = source.count = count;
    ff_pipeline inner;
    inner.add_stage(&begin);
    inner.add_stage(&end);
    inner.wrap_around();
    ff_pipeline whole;
    whole.add_stage(&source);
    whole.add_stage(&inner);
    source.createGroup("G1");
    auto g2 = inner.createGroup("G2");
    if (cut) {
        g2 << &begin;
        ff::createGroup("G3") << &end;
    }
    return whole.run_and_wait_end();
}

/// The loop's group can start so many threads.
int few_threads(int spare) {
    const amalgam::few_threads few(DFF_getMyGroup() == "G2" ? spare : -1);
    return loop(false, items);
}

/// Two all-to-alls of plain nodes, in which the second's first set is larger.
int sets() {
    make<plain> first;
    add_one<plain> a[2];
    add_one<many_in> c[2];
    total<many_in> last(sum_to(items) + 2 * items);
    ff_a2a left;
    left.add_firstset(std::vector<ff_node*>{&a[0], &a[1]});
    left.add_secondset(std::vector<ff_node*>{&c[0], &c[1]});
    ff_pipeline whole;
    whole.add_stage(&first);
    whole.add_stage(&left);
    whole.add_stage(&last);
    first.createGroup("G1");
    left.createGroup("G2");
    last.createGroup("G3");
    return whole.run_and_wait_end();
}

/// Each item waits for the answer to the one before, though a batch has room for many.
int flush() {
    ff::setBatchSize(64);
    ff::setBatchByteSize(1 << 20);
    struct ask : many_in {
        item* svc(item* what) override {
            if (what != nullptr) {
                sum += what->number;
                delete what;
            }
            if (next == 100) return EOS;
            ff_send_out(new item{next++, 0, {}});
            return FLUSH;
        }
        void svc_end() override { check("the sum", sum, sum_to(100) + 100); }
        long next = 0, sum = 0;
    } first;
    add_one<plain> last;
    ff_Pipe<> whole(first, last);
    whole.wrap_around();
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

/// Items of many megabytes.
int large() {
    struct source : plain {
        item* svc(item*) override {
            for (long i = 0; i != 12; ++i)
                ff_send_out(new item{i, 0, std::string(8 << 20, static_cast<char>('a' + i))});
            return EOS;
        }
    } first;
    struct sink : plain {
        item* svc(item* what) override {
            if (what->number == count && what->text.size() == 8 << 20 &&
                what->text.back() == static_cast<char>('a' + count))
                ++count;
            delete what;
            return GO_ON;
        }
        void svc_end() override { check("good items", count, 12); }
        long count = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

/// The middle group dies, throws, or ends early, while the first goes on for ever, or for long.
int trouble(const std::string& which) {
    struct endless : plain {
        item* svc(item*) override {
            for (long i = 0; i != limit; ++i)
                ff_send_out(new item{i, 0, "some bytes"});
            return EOS;
        }
        long limit = -1;
    } first;
    struct middle_node : plain {
        item* svc(item* what) override {
            if (++count < 1000) return what;
            delete what;
            if (kind == "dies") std::_Exit(7);
            if (kind == "throws") throw std::runtime_error("the thousandth");
            return EOS;
        }
        std::string kind;
        long count = 0;
    } middle;
    struct sink : plain {
        item* svc(item* what) override {
            ++count;
            delete what;
            return GO_ON;
        }
        void svc_end() override {
            if (checked) check("items", count, 999);
        }
        bool checked = true;
        long count = 0;
    } last;
    middle.kind = which;
    if (which != "dies") first.limit = 20000;
    last.checked = which != "dies";
    ff_pipeline whole;
    whole.add_stage(&first);
    whole.add_stage(&middle);
    whole.add_stage(&last);
    first.createGroup("G1");
    middle.createGroup("G2");
    last.createGroup("G3");
    return whole.run_and_wait_end();
}

/// An item that its reader refuses.
struct unreadable : item {
    template <class Archive>
    void serialize(Archive& archive) {
        item::serialize(archive);
        if (Archive::is_loading && number == 70) throw std::runtime_error("not this one");
    }
};
int not_readable() {
    struct source : ff_node_t<unreadable> {
        unreadable* svc(unreadable*) override {
            for (long i = 0;; ++i) {
                auto* const made = new unreadable;
                made->number = i;
                ff_send_out(made);
            }
        }
    } first;
    struct sink : ff_node_t<unreadable> {
        unreadable* svc(unreadable* what) override {
            delete what;
            return GO_ON;
        }
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

int untyped() {
    struct node : ff_node {
        void* svc(void*) override { return EOS; }
    } first, last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

/// Groups with a fault: a name twice, a node twice, a node in none, an unknown name.
int faulty(const std::string& which) {
    make<plain> first;
    total<plain> last(0);
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    if (which == "twice") last.createGroup("G1");
    if (which == "both") ff::createGroup("G2") << &first << &last;
    if (which == "unknown") last.createGroup("elsewhere");
    return whole.run_and_wait_end();
}

/// Inside a node of a group, a pipeline of its own.
int inner_block() {
    struct runs_a_pipe : plain {
        item* svc(item* what) override {
            struct one : plain {
                item* svc(item*) override {
                    ff_send_out(new item{1, 0, {}});
                    return EOS;
                }
            } begin;
            struct two : plain {
                item* svc(item* got) override {
                    sum += got->number;
                    delete got;
                    return GO_ON;
                }
                long sum = 0;
            } end;
            ff_Pipe<> inner(begin, end);
            if (inner.run_and_wait_end() == 0) what->number += end.sum;
            return what;
        }
    } middle;
    make<plain> first(50);
    total<plain> last(sum_to(50) + 50);
    ff_pipeline whole;
    whole.add_stage(&first);
    whole.add_stage(&middle);
    whole.add_stage(&last);
    first.createGroup("G1", "node1");
    middle.createGroup("G2");
    last.createGroup("G3");
    return whole.run_and_wait_end();
}

}  // namespace

int main(int argc, char** argv) {
    if (DFF_Init(argc, argv) != 0) return 3;
    const std::string which = argc > 1 ? argv[1] : "";
    const std::string how = argc > 2 ? argv[2] : "";
    cases all = cases_of_bytes();
    all.merge(cases_of_cereal());
    all.merge(cases{
        {"stages", stages},
        {"farm", farm},
        {"ordered_farm", ordered_farm},
        {"left_and_right", [] { return all_to_all(false); }},
        {"mixed", [] { return all_to_all(true); }},
        {"loop", [] { return loop(true, 100); }},
        {"few_threads", [&] { return few_threads(std::stoi(how)); }},
        {"sets", sets},
        {"flush", flush},
        {"large", large},
        {"trouble", [&] { return trouble(how); }},
        {"not_readable", not_readable},
        {"untyped", untyped},
        {"faulty", [&] { return faulty(how); }},
        {"inner_block", inner_block},
        {"another", [&] { return how == "here" ? stages() : sets(); }},
    });
    const auto found = all.find(which);
    if (found == all.end()) {
        ff::cout << "no case " << which << "\n";
        return 2;
    }
    return found->second() < 0 ? 1 : 0;
}
