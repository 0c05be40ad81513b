// gRPC from nothing to the first answer: a program that makes a channel, calls once, and ends.
//   first_grpc tcp|unix    milliseconds
#include <cstdio>
#include <memory>
#include <string>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "perf/pair.hpp"
#include "spawned.hpp"

namespace {

using namespace amalgam;

grpc::ByteBuffer four_bytes() {
    const grpc::Slice slice("next");
    return grpc::ByteBuffer(&slice, 1);
}

int ask(const std::string& address) {
    grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, "/bench.Bench/Next", four_bytes(), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.ok() ? 0 : 1;
}

/// Answers any call with its own bytes.
class echo final : public grpc::CallbackGenericService {
    class reactor final : public grpc::ServerGenericBidiReactor {
    public:
        reactor() { StartRead(&bytes_); }

    private:
        void OnReadDone(bool ok) override {
            if (ok) StartWriteAndFinish(&bytes_, grpc::WriteOptions(), grpc::Status::OK);
        }
        void OnDone() override { delete this; }
        grpc::ByteBuffer bytes_;
    };
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
        return new reactor;
    }
};

double measure(const std::string& program, const std::string& over) {
    perf::forked_peer server([&](perf::channel& talk) {
        const std::string wanted =
            over == "tcp" ? "127.0.0.1:0"
                          : "unix-abstract:amalgam-bench-" + std::to_string(::getpid());
        echo service;
        grpc::ServerBuilder builder;
        int port = 0;
        builder.AddListeningPort(wanted, grpc::InsecureServerCredentials(), &port);
        builder.RegisterCallbackGenericService(&service);
        const auto there = builder.BuildAndStart();
        if (!there) throw error(errc::invalid, "gRPC could not listen at " + wanted);
        talk.write_line(over == "tcp" ? "127.0.0.1:" + std::to_string(port) : wanted);
        try {
            talk.read_line();
        } catch (const error&) {
            ::_exit(0);
        }
    });
    return bench::milliseconds_of({program, "ask", server.talk().read_line()});
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc >= 2 ? argv[1] : "";
    try {
        if (what == "ask" && argc == 3) return ask(argv[2]);
        if (argc != 2 || (what != "tcp" && what != "unix")) {
            std::fprintf(stderr, "usage: %s tcp|unix\n", argv[0]);
            return 2;
        }
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], measure(argv[0], what));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s %s: %s\n", argv[0], what.c_str(), e.what());
        return 1;
    }
}
