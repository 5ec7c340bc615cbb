"""Transactions in one pipeline, byte by byte over the wire: BEGIN, statements, COMMIT before one Sync.

Prints what came back for each pipeline, to be compared with pipeline_client.expected (from PostgreSQL 15).
"""

import socket,struct,sys
host,port=sys.argv[1],int(sys.argv[2])
s=socket.create_connection((host,port)); s.settimeout(10)
def msg(t,b): return t+struct.pack('!I',len(b)+4)+b
b=struct.pack('!I',196608)+b'user\0postgres\0database\0postgres\0\0'
s.sendall(struct.pack('!I',len(b)+4)+b)
buf=b''
def read_until_ready():
    global buf
    out=[]
    while True:
        while len(buf)<5 or len(buf)<1+struct.unpack('!I',buf[1:5])[0]:
            d=s.recv(65536)
            if not d: return out
            buf+=d
        n=1+struct.unpack('!I',buf[1:5])[0]
        t,body=buf[:1],buf[5:n]; buf=buf[n:]
        if t in b'SKN' : continue
        if t==b'R': continue
        if t==b'E':
            f={x[:1]:x[1:] for x in body.split(b'\0') if x}
            out.append('E '+f[b'C'].decode()+' '+f[b'M'].decode())
        elif t==b'D':
            k=struct.unpack('!H',body[:2])[0]; p=2; vals=[]
            for _ in range(k):
                l=struct.unpack('!i',body[p:p+4])[0]; p+=4
                vals.append(None if l<0 else body[p:p+l].decode()); p+=max(l,0)
            out.append('D '+repr(vals))
        elif t==b'C': out.append('C '+body[:-1].decode())
        elif t==b'Z': out.append('Z '+body.decode()); return out
        else: out.append(t.decode())
def q(sql): s.sendall(msg(b'Q',sql.encode()+b'\0')); return read_until_ready()
def step(sql,params=(),describe=True,limit=0):
    r=msg(b'P',b'\0'+sql.encode()+b'\0\0\0')
    values=b''.join(struct.pack('!I',len(str(p)))+str(p).encode() for p in params)
    r+=msg(b'B',b'\0\0\0\0'+struct.pack('!H',len(params))+values+b'\0\0')
    if describe: r+=msg(b'D',b'P\0')
    return r+msg(b'E',b'\0'+struct.pack('!I',limit))
SYNC=msg(b'S',b'')
read_until_ready()
print(q("DROP TABLE IF EXISTS pt; CREATE TABLE pt (id int PRIMARY KEY, v int); "
    "INSERT INTO pt VALUES (1,10),(2,20)"))
def pipe(*steps): s.sendall(b''.join(steps)+SYNC); print(read_until_ready())
pipe(step("BEGIN"),
    step("UPDATE pt SET v = v + $1 WHERE id = $2",(5,1)),
    step("SELECT v FROM pt WHERE id = $1",(1,)),
    step("INSERT INTO pt VALUES ($1,$2) RETURNING id",(3,30)),
    step("COMMIT"))
pipe(step("BEGIN"),
    step("UPDATE pt SET v = 0 WHERE id = $1",(1,)),
    step("INSERT INTO pt VALUES ($1,$2)",(3,30)),
    step("UPDATE pt SET v = 1 WHERE id = 1"),
    step("COMMIT"))
pipe(step("COMMIT"))
pipe(step("BEGIN"),
    step("UPDATE pt SET v = v + 1 WHERE id = 1"),
    step("SELECT sum(v) FROM pt"),
    step("COMMIT"))
pipe(step("BEGIN"),
    step("UPDATE pt SET v = v + 1 WHERE id = 1"))
pipe(step("UPDATE pt SET v = v + 1 WHERE id = 1"),
    step("COMMIT"))
pipe(step("BEGIN"),
    step("UPDATE pt SET v = v + 1 WHERE id = 1"),
    step("SELEC"),
    step("COMMIT"))
pipe(step("ROLLBACK"))
pipe(step("BEGIN"),
    step("SELECT v FROM pt WHERE id >= 1 AND id <= 3",limit=1),
    step("COMMIT"))
pipe(step("BEGIN"),
    step("COMMIT"))
pipe(step("BEGIN"),
    step("UPDATE pt SET v = v + 1 WHERE id = 1"),
    step("COMMIT"),
    step("SELECT id, v FROM pt WHERE id = 1"))
print(q("SELECT id, v FROM pt ORDER BY id"))
