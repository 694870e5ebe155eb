"""Master and slave: the classic HA link. Start reading at ha_service.py."""
