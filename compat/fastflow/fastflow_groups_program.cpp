// A distributed program with many graphs, for fastflow_groups_test: fastflow_groups_program CASE,
// and FastFlow's options. The last node of each compares what it got with a plain loop, and prints
// "right" or what was wrong.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ff/dff.hpp>

using namespace ff;

namespace {

constexpr long items = 2000;

struct item {
    long number = 0;
    long from = -1;
    std::string text;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(number, from, text);
    }
};

long sum_to(long n) {
    return n * (n - 1) / 2;
}
int check(const char* what, long got, long expected) {
    if (got == expected)
        ff::cout << "right\n";
    else
        ff::cout << "wrong: " << what << " is " << got << ", expected " << expected << "\n";
    return 0;
}

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

/// A loop over two groups: each item goes round until it has been increased ten times.
int loop() {
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
        void svc_end() override { check("the sum", sum, sum_to(100) + 100 * 10); }
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
            for (long i = 0; i != 100; ++i)
                ff_send_out(new item{i, -1, {}});
            return EOS;
        }
    } source;
    ff_pipeline inner;
    inner.add_stage(&begin);
    inner.add_stage(&end);
    inner.wrap_around();
    ff_pipeline whole;
    whole.add_stage(&source);
    whole.add_stage(&inner);
    source.createGroup("G1");
    inner.createGroup("G2") << &begin;
    ff::createGroup("G3") << &end;
    return whole.run_and_wait_end();
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

/// Members that turn an item into bytes and back: nothing is copied at either end.
struct by_hand {
    char* bytes = nullptr;
    std::size_t count = 0;
    char* whole = nullptr;  // that `bytes` is in, to be freed with it
    static inline long released = 0, freed = 0;

    ~by_hand() { std::free(whole != nullptr ? whole : bytes); }
    serializedBuffer_t serialize() {
        return {bytes, count, false, this, [](void* owner, char*, std::size_t) {
                    ++released;
                    delete static_cast<by_hand*>(owner);
                }};
    }
    bool deserialize(char* from, std::size_t size) {
        bytes = whole = from;
        count = size;
        return false;
    }
    static by_hand* alloc(char*, std::size_t) { return new by_hand; }
    static void freeTask(by_hand* what) {
        ++freed;
        delete what;
    }
};
/// The same with bytes of the runtime.
struct copied : by_hand {
    serializedBuffer_t serialize() {
        char* const to = static_cast<char*>(std::malloc(count));
        std::memcpy(to, bytes, count);
        return {to, count};
    }
    bool deserialize(char* from, std::size_t size) {
        bytes = static_cast<char*>(std::malloc(size));
        std::memcpy(bytes, from, size);
        count = size;
        return true;
    }
    static copied* alloc(char*, std::size_t) { return new copied; }
    static void freeTask(copied* what) {
        ++freed;
        delete what;
    }
};
template <typename T>
int manual() {
    struct source : ff_node_t<T> {
        T* svc(T*) override {
            for (std::size_t i = 1; i <= 200; ++i) {
                auto* const made = new T;
                made->count = i * 1000;
                made->bytes = static_cast<char*>(std::malloc(made->count));
                std::memset(made->bytes, static_cast<int>(i), made->count);
                this->ff_send_out(made);
            }
            return this->EOS;
        }
    } first;
    struct sink : ff_node_t<T> {
        T* svc(T* what) override {
            ++count;
            for (std::size_t i = 0; i != what->count; ++i)
                if (what->bytes[i] != static_cast<char>(count) ||
                    what->count != static_cast<std::size_t>(count) * 1000) {
                    ff::cout << "wrong: item " << count << " has other bytes\n";
                    break;
                }
            delete what;
            return this->GO_ON;
        }
        void svc_end() override { check("items", count, 200); }
        long count = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    const int result = whole.run_and_wait_end();
    if (DFF_getMyGroup() == "G1")
        check("items given back", by_hand::released + by_hand::freed, 200);
    return result;
}

/// Functions that nodes set, in both of FastFlow's forms, for a type that knows nothing of it.
struct opaque {
    explicit opaque(long n) : number(n) {}
    long number;
};
int functions(bool older) {
    struct source : ff_node {
        explicit source(bool with_buffer) {
            if (with_buffer) {
                serializeF = [](void* what, dataBuffer& to) {
                    std::ostream stream(&to);
                    stream << static_cast<opaque*>(what)->number;
                    return true;
                };
            } else {
                serializeF = [](void* what, message2_t* to) {
                    char* const bytes = static_cast<char*>(std::malloc(sizeof(long)));
                    std::memcpy(bytes, &static_cast<opaque*>(what)->number, sizeof(long));
                    to->setBuff({bytes, sizeof(long)});
                    to->cleanup = true;
                    return true;
                };
            }
            freetaskF = [](void* what) { delete static_cast<opaque*>(what); };
        }
        void* svc(void*) override {
            for (long i = 0; i != items; ++i)
                ff_send_out(new opaque(i));
            return EOS;
        }
    } first(older);
    struct sink : ff_node {
        explicit sink(bool with_buffer) {
            alloctaskF = [](char*, std::size_t) -> void* { return new opaque(0); };
            if (with_buffer) {
                deserializeF = [](dataBuffer& from, bool& is_copied) -> void* {
                    is_copied = true;
                    return new opaque(std::stol(std::string(from.getPtr(), from.getLen())));
                };
            } else {
                deserializeF = [](message2_t* from, bool&, ff_node* self) -> void* {
                    auto* const made = static_cast<opaque*>(self->alloctaskF(nullptr, 0));
                    std::memcpy(&made->number, from->data, sizeof(long));
                    return made;
                };
            }
        }
        void* svc(void* what) override {
            sum += static_cast<opaque*>(what)->number;
            delete static_cast<opaque*>(what);
            return GO_ON;
        }
        void svc_end() override { check("the sum", sum, sum_to(items)); }
        long sum = 0;
    } last(older);
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    return whole.run_and_wait_end();
}

/// What serialize(Archive&) may hold.
struct everything {
    std::vector<std::string> words;
    std::map<std::string, std::vector<double>> table;
    std::optional<int> maybe, never;
    std::unique_ptr<item> inner;
    std::pair<int, std::array<short, 3>> both;
    std::set<char> letters;
    std::vector<bool> bits;
    std::tuple<bool, std::string, float> three;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(words, table, maybe, never);
        archive(inner, both);
        archive& letters;
        archive(bits, three);
    }
};
int containers() {
    struct source : ff_node_t<everything> {
        everything* svc(everything*) override {
            for (int i = 0; i != 50; ++i) {
                auto* const made = new everything;
                made->words.assign(static_cast<std::size_t>(i), "word");
                made->table["a"] = {1.5, i + 0.5};
                made->maybe = i;
                made->inner = std::make_unique<item>(item{i, 1, "inner"});
                made->both = {i, {1, 2, 3}};
                made->letters = {'a', 'b'};
                made->bits = {true, false, true};
                made->three = {true, "three", 3.F};
                ff_send_out(made);
            }
            return EOS;
        }
    } first;
    struct sink : ff_node_t<everything> {
        everything* svc(everything* what) override {
            const std::unique_ptr<everything> owned(what);
            const int i = static_cast<int>(count);
            const bool good = what->words.size() == static_cast<std::size_t>(i) &&
                              what->table["a"] == std::vector<double>{1.5, i + 0.5} &&
                              what->maybe == i && !what->never && what->inner->text == "inner" &&
                              what->inner->number == i && what->both.second[2] == 3 &&
                              what->letters == std::set<char>{'a', 'b'} &&
                              what->bits == std::vector<bool>{true, false, true} &&
                              std::get<1>(what->three) == "three";
            if (good) ++count;
            return GO_ON;
        }
        void svc_end() override { check("good items", count, 50); }
        long count = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
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
    const std::map<std::string, std::function<int()>> all{
        {"stages", stages},
        {"farm", farm},
        {"ordered_farm", ordered_farm},
        {"left_and_right", [] { return all_to_all(false); }},
        {"mixed", [] { return all_to_all(true); }},
        {"loop", loop},
        {"sets", sets},
        {"not_copied", [] { return manual<by_hand>(); }},
        {"copied", [] { return manual<copied>(); }},
        {"functions", [] { return functions(false); }},
        {"older_functions", [] { return functions(true); }},
        {"containers", containers},
        {"flush", flush},
        {"large", large},
        {"trouble", [&] { return trouble(how); }},
        {"not_readable", not_readable},
        {"untyped", untyped},
        {"faulty", [&] { return faulty(how); }},
        {"inner_block", inner_block},
        {"another", [&] { return how == "here" ? stages() : sets(); }},
    };
    const auto found = all.find(which);
    if (found == all.end()) {
        ff::cout << "no case " << which << "\n";
        return 2;
    }
    return found->second() < 0 ? 1 : 0;
}
