/* Figure 1 of the RoCL paper, in C: a server is found by its type, and gets a message. Here both
 * are threads of one process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <amalgam/rocl.h>

static int check(int got, const char* what) {
    if (got >= 0) return got;
    fprintf(stderr, "%s: %d\n", what, got);
    exit(1);
}

/* A resource with one attribute. */
static int announce(const char* type) {
    rocl_attrl_t* attrs = rocl_new_attrl(1024);
    int gid;
    check(rocl_add_attr(attrs, "type", type, (int)strlen(type)), "rocl_add_attr");
    gid = check(rocl_register(attrs), "rocl_register");
    rocl_kill_attrl(attrs);
    return gid;
}

static void* serve(void* gid_1) {
    void* msg_1;
    int length;
    check(rocl_recv(*(int*)gid_1, ROCL_ANY, ROCL_ANY, &msg_1, NULL, NULL, &length, -1),
          "rocl_recv");
    printf("the server got \"%.*s\"\n", length, (char*)msg_1);
    check(rocl_bfret(msg_1), "rocl_bfret");
    return NULL;
}

int main(void) {
    const char text[] = "good morning";
    pthread_t server;
    rocl_attrl_t* wanted;
    int gid_1, gid_2, gid_3 = ROCL_ANY;
    void* msg_2;

    check(rocl_init(), "rocl_init");
    gid_1 = announce("server");
    if (pthread_create(&server, NULL, serve, &gid_1) != 0) return 1;

    gid_2 = announce("client");
    wanted = rocl_new_attrl(1024);
    check(rocl_add_attr(wanted, "type", "server", 6), "rocl_add_attr");
    check(rocl_query(&gid_3, wanted), "rocl_query");
    rocl_kill_attrl(wanted);

    msg_2 = rocl_bfget(sizeof text - 1);
    memcpy(msg_2, text, sizeof text - 1);
    check(rocl_send(gid_2, gid_3, 0, msg_2, sizeof text - 1), "rocl_send");
    check(rocl_bftoret(msg_2), "rocl_bftoret");

    pthread_join(server, NULL);
    return rocl_exit() == 0 ? 0 : 1;
}
